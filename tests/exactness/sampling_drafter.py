"""A drafter for tests of rejection mode: it draws from laws by the last token, and tells with the tree what they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tests.exactness.drafters import CheckingDrafter, TreeBuilder
from tts_orch.policies.drafting.draft_tree import (
    DRAFTS_A_STEP,
    DraftLaws,
    DraftTree,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.gumbel import gumbel
from tts_orch.records import IntArray

Slot: TypeAlias = Literal["drawn", "other", "fixed"]
"""A child drawn from the law, from the law turned upside down, or the most probable one left."""
Table: TypeAlias = tuple[IntArray, NDArray[np.float64]]
"""`[V, k]` ids and probabilities by last token; a row of zeros where nothing is known."""

_KNOWN = 6
_DEPTH = 2


def empty_table(vocabulary_size: int) -> Table:
    """Return the table that knows nothing."""
    return np.zeros((vocabulary_size, _KNOWN), np.int32), np.zeros((vocabulary_size, _KNOWN))


def constant_table(vocabulary_size: int, token_ids: Sequence[int], probs: Sequence[float]) -> Table:
    """Return one law on these ids, the same after every token."""
    return np.tile(np.array(token_ids, np.int32), (vocabulary_size, 1)), np.tile(np.array(probs), (vocabulary_size, 1))


def random_table(vocabulary_size: int, token_ids: Sequence[int]) -> Table:
    """Return fixed laws on these ids, a different one after every token."""
    probs = np.random.default_rng(0).dirichlet(np.ones(_KNOWN), vocabulary_size)
    return np.tile(np.array(token_ids, np.int32), (vocabulary_size, 1)), probs


class SamplingDrafter(CheckingDrafter):
    """Trees of two levels, each node with one child a slot.

    Args:
        table: laws to begin with, in every scope.
        slots: where a node's children come from, in order.
        learns: whether each scope takes over the raw laws that it is told.
        shifts: whether the table changes between the drafts of two trajectories of a pass.
        is_careless: whether what is told about the laws follows such a change: a fault.
        repeats_noise: whether all verify steps are drawn with the same noise: a fault.
    """

    def __init__(
        self,
        table: Table,
        slots: Sequence[Slot],
        *,
        learns: bool = False,
        shifts: bool = False,
        is_careless: bool = False,
        repeats_noise: bool = False,
    ) -> None:
        super().__init__()
        self._empty = table
        self._tables: dict[str, Table] = {}
        self._slots = slots
        self._learns = learns
        self._shifts = shifts
        self._is_careless = is_careless
        self._repeats_noise = repeats_noise

    def _table(self, trajectory: TrajectoryId) -> Table:
        scope = self.told[trajectory].start.scope
        if scope not in self._tables:
            self._tables[scope] = (self._empty[0].copy(), self._empty[1].copy())
        return self._tables[scope]

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        told, (ids, probs) = self.told[trajectory], self._table(trajectory)
        if self._shifts:
            probs[:] = np.roll(probs, 1, axis=1)
        position = 0 if self._repeats_noise else len(told.steps) * DRAFTS_A_STEP
        builder, of_node, nodes = TreeBuilder(tokens[-1]), [-1], [(0, tokens[-1], 0)]
        for node, last, depth in nodes:
            if depth == _DEPTH:
                break
            for slot, column in self._draw(ids[last], probs[last], told.start, position + node):
                if len(builder) == n_nodes:
                    break
                token = int(ids[last, column])
                nodes.append((builder.add(node, token), token, depth + 1))
                of_node.append({"drawn": last, "other": last + len(ids), "fixed": -1}[slot])
        kept = (ids, probs) if self._is_careless else (np.tile(ids, (2, 1)), np.concatenate([probs, probs[:, ::-1]]))
        return replace(builder.build(), laws=DraftLaws(*kept, np.array(of_node, np.int32)))

    def _draw(
        self, ids: IntArray, probs: NDArray[np.float64], start: TrajectoryStart, position: int
    ) -> list[tuple[Slot, int]]:
        """Return the slots that can be filled and the column that each takes; a token's noise is that of its id."""
        noise = gumbel(start.seed, position, np.concatenate([ids, len(self._empty[0]) + ids]))
        with np.errstate(divide="ignore"):
            log_q, log_other = np.log(probs), np.log(probs[::-1])
        scores = {"drawn": log_q + noise[:_KNOWN], "other": log_other + noise[_KNOWN:], "fixed": log_q}
        filled: list[tuple[Slot, int]] = []
        for slot in self._slots:
            score = scores[slot].copy()
            score[[column for _, column in filled]] = -np.inf
            if score.max() > -np.inf:
                filled.append((slot, int(score.argmax())))
        return filled

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        super().observe(steps)
        for step in steps if self._learns else ():
            ids, probs = self._table(step.trajectory)
            rows = [0, *step.accepted.tolist()][: len(step.committed)]
            last = step.tree.token[rows]
            ids[last] = step.law_ids[rows, :_KNOWN]
            probs[last] = step.law_probs[rows, :_KNOWN] / step.law_probs[rows, :_KNOWN].sum(axis=1, keepdims=True)
