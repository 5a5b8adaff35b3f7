"""The methods that are compared and the choices that are ablated: a method is a `DraftingConfig` with a name, nothing else.

Everything that builds a drafter or a draft size from a method is here, so replayed, real and timed cells mean the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tts_orch.config import DraftingConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.draft_size import DraftSize, FixedSize, Seconds
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.registry import make_drafter

__all__ = [
    "METHODS",
    "Method",
    "ablations",
    "chosen_methods",
    "cost_model",
    "draft_size",
    "learns_from_rejected",
    "new_drafter",
    "scope_name",
    "trained_methods",
]

_ANY_VOCABULARY: Final = 1024


@dataclass(frozen=True, slots=True)
class Method:
    """A way to draft, by name.

    Attributes:
        name: key in results.
        label: what tables and plots call it.
        settings: of `DraftingConfig`, but for `max_nodes`, which the comparison sets.
        tree: name of a static tree among those of the benchmark, None for the one that comes with the package.
    """

    name: str
    label: str
    settings: Mapping[str, Any]
    tree: str | None = None

    def config(self, max_nodes: int, trees: Mapping[str, Path]) -> DraftingConfig:
        """Return the settings of a decoder, with trees found by name."""
        tree = {"draft_tree": trees[self.tree]} if self.tree else {}
        return DraftingConfig(**{"node_budget": False, "max_nodes": max_nodes, **tree, **self.settings})


_STAND: Final = {"drafter": "stand", "update_from_rejected": False}
"""What a replay can tell exactly; the product learns from rejected nodes too."""
_STAND_IN_FULL: Final = {"drafter": "stand"}
_SCOPE_OF_RUN: Final = {"statistics_scope": "run"}
"""One matrix over all requests, as in the papers of Token Recycling and SAM decoding."""

METHODS: Final = (
    Method("plain", "plain decoding", {"drafter": "none"}),
    Method("prompt_lookup", "PLD", {"drafter": "prompt_lookup"}),
    Method("anpd", "ANPD", {"drafter": "anpd"}),
    Method("suffix_automaton", "SAM + Token Recycling", {"drafter": "suffix_automaton"}),
    Method("token_recycling", "Token Recycling", {"drafter": "token_recycling"}),
    Method(
        "suffix_automaton_run", "SAM + Token Recycling, whole run", {"drafter": "suffix_automaton", **_SCOPE_OF_RUN}
    ),
    Method("token_recycling_run", "Token Recycling, whole run", {"drafter": "token_recycling", **_SCOPE_OF_RUN}),
    Method("suffix_tries", "SuffixDecoding", {"drafter": "suffix_tries"}),
    Method("stand_deterministic", "STAND deterministic", {**_STAND, "draft_sampling": "deterministic"}, "heuristic"),
    Method("stand", "STAND stochastic", _STAND, "heuristic"),
    Method("stand_learned", "STAND learned tree", _STAND),
    Method("stand_budget", "STAND node budget", {**_STAND, "node_budget": True}),
    Method(
        "stand_deterministic_in_full",
        "STAND deterministic, rejected nodes too",
        {**_STAND_IN_FULL, "draft_sampling": "deterministic"},
    ),
    Method("stand_in_full", "STAND learned tree, rejected nodes too", _STAND_IN_FULL),
    Method("stand_budget_in_full", "STAND node budget, rejected nodes too", {**_STAND_IN_FULL, "node_budget": True}),
)
"""In the order of the tables."""


def chosen_methods(names: Sequence[str]) -> tuple[Method, ...]:
    """Return the methods of these names, all for none.

    Raises:
        ConfigError: there is no such method.
    """
    known = {method.name: method for method in METHODS}
    for name in names:
        if name not in known:
            raise ConfigError(f"methods: no method {name!r}; there are {', '.join(known)}")
    return tuple(known[name] for name in names) or METHODS


def trained_methods(drafters: Mapping[str, Path]) -> tuple[Method, ...]:
    """Return methods of trained drafters: each alone, and where there are several all of them merged."""
    alone = tuple(
        Method(f"trained_{name}", name, {"drafter": "neural", "drafters": {name: folder}})
        for name, folder in drafters.items()
    )
    if len(drafters) < 2:
        return alone
    merged = {"drafter": "neural", "drafters": drafters, "routing": "merged"}
    return (*alone, Method("trained_merged", f"{' + '.join(drafters)}, merged", merged))


def ablations() -> tuple[Method, ...]:
    """Return the choices that the paper leaves open, one changed at a time; the first is what the others are held against."""
    return (
        Method("default", "defaults, learned tree", _STAND),
        Method("prompt_laws", "(a) prompts: laws, not text", {**_STAND, "update_from_prefill": "laws"}),
        Method("no_prefill", "(a) prompts not learned", {**_STAND, "update_from_prefill": "nothing"}),
        Method("from_rejected", "(b) rejected nodes learned too", _STAND_IN_FULL),
        Method("scope_request", "(c) table of a request", {**_STAND, "statistics_scope": "request"}),
        Method("scope_task", "(c) table of a task", {**_STAND, "statistics_scope": "task"}),
        Method("scope_run", "(c) table of the run", {**_STAND, **_SCOPE_OF_RUN}),
        Method("stored_processed", "(d) processed laws stored", {**_STAND, "stored_law": "processed"}),
        Method("tree_heuristic", "(e) heuristic tree", _STAND, "heuristic"),
        Method("tree_flat", "(e) tree of a flat acceptance vector", _STAND, "flat"),
        Method("tree_steep", "(e) tree of a steep acceptance vector", _STAND, "steep"),
        Method("no_unigram", "(f) no contexts of one token", {**_STAND, "unigram": False}),
    )


def new_drafter(config: DraftingConfig, vocabulary_size: int) -> Drafter | None:
    """Return a drafter that has seen nothing, None for plain decoding."""
    return make_drafter(config, vocabulary_size=vocabulary_size)


def draft_size(config: DraftingConfig, drafter: Drafter, seconds: Seconds) -> DraftSize:
    """Return how many nodes a pass verifies.

    Args:
        config: of the drafter.
        drafter: whose nodes are chosen.
        seconds: cost of passes by their rows, for the node budget.
    """
    if not config.node_budget:
        return FixedSize(config.max_nodes)
    return NodeBudget(drafter.priors, seconds, config.max_nodes)


def cost_model(table: Sequence[tuple[int, float]]) -> CostModel:
    """Return a new model of what passes cost, from (rows, seconds) as `CostModel.table` has them."""
    rows, seconds = zip(*table, strict=True)
    return CostModel(seconds, rows)


@cache
def learns_from_rejected(config: DraftingConfig) -> bool:
    """Whether the laws of rejected nodes matter, which no recording has."""
    small = config.model_copy(update={"table_entries": 1024})
    drafter = new_drafter(small, _ANY_VOCABULARY)
    return drafter is not None and drafter.learns_from_rejected


def scope_name(config: DraftingConfig, problem_id: str, index: int, *, is_greedy: bool) -> str:
    """Return which statistics a trajectory shares; greedy ones of a problem are all equal, so they share over problems."""
    if config.statistics_scope == "request":
        return f"{problem_id}/{index}"
    if config.statistics_scope == "problem" and not is_greedy:
        return problem_id
    return "all"
