"""Makes a drafter compile, or load from the cache, everything it will call, so that no decode step waits for it."""

from __future__ import annotations

import numpy as np

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_size import DraftSize, FixedSize
from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.law_candidates import Parents, choose_candidates
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.routing.merged import MergedRouting
from tts_orch.records import SamplingParams

__all__ = ["warm_up"]

_VOCABULARY_SIZE = 64


def warm_up(config: DraftingConfig) -> None:
    """Let a drafter of these settings, made for this and thrown away, follow a text of its own."""
    if config.drafters:
        _choose()
    untrained = "prompt_lookup" if config.drafter == "neural" else config.drafter  # calls what every drafter does
    small = config.model_copy(update={"drafter": untrained, "table_entries": 1024})
    drafter = make_drafter(small, vocabulary_size=_VOCABULARY_SIZE, is_shared=True)
    if drafter is None:
        return
    _follow(drafter, config.verification == "keyed")
    if len(config.members) > 1:
        members = {"first": drafter, "second": PromptLookup()}
        _follow(
            ComposedDrafter(members, MergedRouting(list(members))), is_keyed=True
        )  # the trees of either verification
    if isinstance(drafter, Stand):  # another worker's deltas are merged between decode steps too
        for delta in drafter.drain():
            drafter.merge(delta)
    drafter.close_scope("warm-up")


def _choose() -> None:
    """Let keyed noise choose between candidates, as trained drafters do."""
    ids, log_q = np.array([[0, 1]], np.int32), np.log(np.array([[0.9, 0.1]]))
    one = np.ones(1, np.int64)
    choose_candidates(
        ids, log_q, Parents([SamplingParams()], one > 0, one.astype(np.uint64), one, one.astype(np.int32)), 1
    )


def _follow(drafter: Drafter, is_keyed: bool) -> None:
    for size in (FixedSize(8), NodeBudget(drafter.priors, lambda rows: 10.0 + rows, 8)):
        _follow_with(size, drafter, is_keyed)


def _follow_with(size: DraftSize, drafter: Drafter, is_keyed: bool) -> None:
    text = np.tile(np.arange(4, dtype=np.int32), 4)
    drafter.start(TrajectoryStart("warm-up", text, "warm-up", 1, SamplingParams(), is_keyed))
    drafter.observe_prompt("warm-up", 0, *_laws(len(text)))
    for token in range(4):
        (tree,) = size.draft(drafter.slots(["warm-up"]), np.array([8]), other_rows=0, n_roots=1)
        steps = [_step(tree, token)]
        drafter.observe(steps)
        size.observe(steps)
    drafter.close("warm-up")


def _step(tree: DraftTree, token: int) -> VerifiedStep:
    """The step that commits one token, accepted if it was drafted."""
    accepted = [child for child in tree.children[0] if tree.token[child] == token][:1]
    committed = np.array([token], np.int32)
    return VerifiedStep("warm-up", tree, np.array(accepted, np.int32), committed, *_laws(tree.n_nodes))


def _laws(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Laws of two tokens, the next one of the text and another."""
    ids = np.stack([np.arange(1, n + 1) % 4, np.full(n, 9)], axis=1).astype(np.int32)
    return ids, np.tile(np.array([[0.9, 0.1]], np.float32), (n, 1))
