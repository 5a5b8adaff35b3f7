"""Settings of drafting: who drafts, how several drafters work together, how many of their nodes are verified, and how.

They change the speed, never the law; under keyed verification they change no token either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from pydantic import Field, field_validator, model_validator

from tts_orch.errors import ConfigError
from tts_orch.settings import Settings, existing_file, existing_folder

__all__ = ["DrafterName", "DraftingConfig", "RoutingName", "UntrainedName"]

UntrainedName: TypeAlias = Literal[
    "stand", "prompt_lookup", "anpd", "token_recycling", "suffix_automaton", "suffix_tries"
]
DrafterName: TypeAlias = Literal["none", UntrainedName, "neural"]
RoutingName: TypeAlias = Literal[
    "confidence", "first_steps", "problem", "entropy", "merged", "concatenated", "expected_tokens"
]

_READ_BY: Final[Mapping[str, tuple[RoutingName, ...]]] = {
    "routing_steps": ("first_steps", "problem", "expected_tokens"),
    "routing_probe_every": ("first_steps", "expected_tokens"),
}
_MEMBER_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class DraftingConfig(Settings):
    """Where drafts come from, how many are verified, and how: changes the speed, never the law."""

    drafter: DrafterName = "stand"
    """Where drafts come from; with keyed verification it changes no token. `neural`: from trained drafters alone."""
    drafters: dict[str, Path] = Field(default_factory=dict)
    """Trained drafters by name, folders made by `tts-orch drafter train` or small language models with the target's
    tokenizer; they draft beside `drafter`, alone if that is neural."""
    routing: RoutingName | None = None
    """How several drafters share the work. `confidence`: the surest tree of each step; `first_steps`: the drafter that was
    surest in the first steps; `problem`: by what earlier problems of the domain showed; `entropy`: the drafter with the surest
    first tree; `merged`: one tree of all; `concatenated`: all trees whole; `expected_tokens`: what promises most tokens a
    second. If not given, expected_tokens where an untrained drafter takes part, else confidence."""
    routing_steps: int = Field(4, ge=1)
    """first_steps, problem, expected_tokens: verify steps in which all drafters draft before any is preferred."""
    routing_probe_every: int = Field(32, ge=1)
    """first_steps, expected_tokens: verify steps after which all drafters are tried once more."""
    draft_depth: int = Field(5, ge=1, le=16)
    """Trained drafters: deepest level of their trees."""
    draft_width: int = Field(8, ge=1, le=32)
    """Trained drafters: nodes of a level that they go on from."""
    drafter_placement: Literal["colocated", "pooled"] = "colocated"
    """Trained drafters: on each worker beside the target, or in a process of their own that all workers ask."""
    draft_overlap: bool = False
    """pooled: verify one half of the candidates while the other half is drafted."""
    verification: Literal["keyed", "rejection"] = "keyed"
    """`keyed` replays every token from the seed; `rejection` (recursive rejection sampling) promises the law alone."""
    max_nodes: int = Field(64, ge=0, le=1000)
    """Draft nodes a trajectory may ask for in one verify step."""
    node_budget: bool = True
    """Verify only the nodes that pay on this device, measured while decoding; off, a tree of max_nodes every time."""
    draft_tree: Path | None = None
    """stand, without node_budget: the static tree, a file of `tts-orch tree optimize`; a learned one comes with the package."""
    draft_sampling: Literal["stochastic", "deterministic"] = "stochastic"
    """stand and trained drafters: draw candidates from the law, or take the most probable ones."""
    statistics_scope: Literal["request", "problem", "task", "run"] = "problem"
    """Which candidates share draft statistics: none, those of a problem, of a domain of problems, or all. Workers tell each
    other what they learn with stand only; other drafters share within a worker."""
    update_from_prefill: Literal["text", "laws", "nothing"] = "text"
    """stand: learn the prompt's own n-grams, or the target's laws after them, which costs LM head rows, or nothing of it."""
    update_from_accepted: bool = True
    """stand: learn from the laws of committed positions."""
    update_from_rejected: bool = True
    """stand: learn from the laws of draft nodes that were not accepted too."""
    stored_law: Literal["raw", "processed"] = "raw"
    """stand: keep the target's own law and process it at lookup, or keep it as processed by the sampling law."""
    unigram: bool = True
    """stand: back off to contexts of one token."""
    table_entries: int = Field(1 << 20, ge=1024)
    """stand: contexts a draft table holds at most; the least used ones make room."""

    @property
    def members(self) -> tuple[str, ...]:
        """Names of all that draft, the drafter without training first."""
        first = () if self.drafter in ("none", "neural") else (self.drafter,)
        return (*first, *self.drafters)

    @property
    def chosen_routing(self) -> RoutingName:
        """The routing as given, or the one that suits the members."""
        return self.routing or ("confidence" if self.drafter == "neural" else "expected_tokens")

    @field_validator("drafters")
    @classmethod
    def _are_named_folders(cls, drafters: Mapping[str, Path]) -> dict[str, Path]:
        for name in drafters:
            if name in get_args(DrafterName) or not _MEMBER_NAME.fullmatch(name):
                raise ConfigError(
                    f"drafters: {name!r} cannot be a name; take letters and digits, no drafter's own name"
                )
        made_by = "tts-orch drafter train"
        return {name: existing_folder(path, f"drafters: {name}", made_by) for name, path in drafters.items()}

    @field_validator("draft_tree")
    @classmethod
    def _is_a_file(cls, path: Path | None) -> Path | None:
        return existing_file(path, "draft_tree", "tts-orch tree optimize")

    @model_validator(mode="after")
    def _tree_fits(self) -> DraftingConfig:
        if self.draft_tree is not None and self.drafter != "stand":
            raise ConfigError(f"draft_tree: only stand drafts by it, not {self.drafter}; leave one of both out")
        if self.draft_tree is not None and self.node_budget:
            raise ConfigError(
                "draft_tree: node_budget chooses nodes by itself; turn it off (--no-node-budget), or leave the tree out"
            )
        return self

    @model_validator(mode="after")
    def _stand_learns(self) -> DraftingConfig:
        if self.drafter == "stand" and not (
            self.update_from_prefill != "nothing" or self.update_from_accepted or self.update_from_rejected
        ):
            raise ConfigError("update_from_accepted: stand learns nothing with all update_from_* off; turn one on")
        return self

    @model_validator(mode="after")
    def _members_fit(self) -> DraftingConfig:
        if self.drafter == "neural" and not self.drafters:
            raise ConfigError("drafter: neural drafts by trained drafters; name one (--drafters NAME=FOLDER)")
        if self.drafter == "none" and self.drafters:
            raise ConfigError("drafters: drafter none drafts nothing; take drafter neural, or leave the drafters out")
        if self.routing is not None and len(self.members) < 2:
            raise ConfigError(f"routing: {self.routing} is between several drafters; give more, or leave it out")
        if self.routing == "problem" and self.statistics_scope in ("task", "run"):
            raise ConfigError(
                "routing: problem needs statistics_scope problem; with a wider one, all problems would follow the first"
            )
        for name, readers in _READ_BY.items():
            if self._is_changed(name) and not (len(self.members) > 1 and self.chosen_routing in readers):
                raise ConfigError(f"{name}: only routings {', '.join(readers)} read it; take one, or leave it out")
        return self

    @model_validator(mode="after")
    def _placement_fits(self) -> DraftingConfig:
        if self.drafter_placement == "pooled" and not self.drafters:
            raise ConfigError("drafter_placement: only trained drafters are pooled; name some (--drafters NAME=FOLDER)")
        if self.draft_overlap and self.drafter_placement != "pooled":
            raise ConfigError("draft_overlap: only pooled drafters draft meanwhile; add drafter_placement pooled")
        return self

    def _is_changed(self, name: str) -> bool:
        """Whether a setting differs from its default: a stored configuration gives them all."""
        return bool(getattr(self, name) != type(self).model_fields[name].default)
