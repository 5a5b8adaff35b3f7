"""STAND: drafts drawn from the target's own averaged n-gram laws, shared by all trajectories of a scope.

Source: arXiv 2506.04708. Ours: noise keyed by position (arXiv 2408.07978), so that a draft often is the very token the
verifier will draw, and raw laws in the tables, processed at lookup, so that one table serves every sampling law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tts_orch.policies.drafting.context_delta import ScopeDelta
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand_growth import DraftLaw, grow_tree
from tts_orch.policies.drafting.token_buffer import TokenBuffer
from tts_orch.policies.drafting.tree_shape import MAX_DEPTH, STAND_ACCEPTANCE, TreeShape, heap_tree
from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["Stand"]

_MAX_NODES = 255


@dataclass(frozen=True, slots=True)
class _Trajectory:
    committed: TokenBuffer
    table: NgramTable
    seed: np.uint64
    law: DraftLaw


class Stand:
    """A `Drafter` with an n-gram table for each scope.

    Args:
        shape: the static tree whose first slots are filled; by default the best one for `STAND_ACCEPTANCE`.
        max_entries: contexts a table holds at most.
        vocabulary_size: token ids must be below it.
        records_deltas: whether what is learned is kept for `drain`; pointless without a replica that drains.
    """

    def __init__(
        self,
        *,
        shape: TreeShape | None = None,
        max_entries: int = 1 << 18,
        vocabulary_size: int = 1 << 31,
        records_deltas: bool = False,
    ) -> None:
        self._shape = shape or heap_tree(STAND_ACCEPTANCE, _MAX_NODES, MAX_DEPTH)
        self._max_entries = max_entries
        self._vocabulary_size = vocabulary_size
        self._records_deltas = records_deltas
        self._tables: dict[str, NgramTable] = {}
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}
        self._left_over: list[ScopeDelta] = []  # of closed scopes

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory; the first one of a scope creates its table."""
        table = self._tables.get(start.scope)
        if table is None:
            table = self._tables[start.scope] = NgramTable(
                max_entries=self._max_entries,
                vocabulary_size=self._vocabulary_size,
                records_deltas=self._records_deltas,
            )
        self._trajectories[start.trajectory] = _Trajectory(
            TokenBuffer(start.token_ids), table, np.uint64(start.seed), _draft_law(start.law)
        )

    def fork(self, source: TrajectoryId, target: TrajectoryStart) -> None:
        """Begin a trajectory; its tokens say all there is to know about its source."""
        self.start(target)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories at their committed positions."""
        return _Slots(self._shape, [self._trajectories[trajectory] for trajectory in trajectories])

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Learn the laws of a prefill; they stay local, since every worker that takes the prompt computes them."""
        known = self._trajectories[trajectory]
        known.table.observe(known.committed.tokens, start, *_as_laws(law_ids, law_probs), is_shared=False)

    priors = np.full(1, 0.5)
    learns_from_rejected = False

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn the laws on the committed path, once each, and advance the trajectory."""
        for step in steps:
            self._observe(step)

    def _observe(self, step: VerifiedStep) -> None:
        known = self._trajectories[step.trajectory]
        rows = np.concatenate(([0], step.accepted))[: len(step.committed)]
        first = len(known.committed) - 1
        known.committed.append(step.committed)
        known.table.observe(known.committed.tokens, first, *_as_laws(step.law_ids[rows], step.law_probs[rows]))

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; the table of its scope stays."""
        self._trajectories.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Drop the table of a scope; what it has not handed out yet is part of the next `drain`."""
        table = self._tables.pop(scope, None)
        if table is not None and table.n_undrained:
            self._left_over.append(ScopeDelta(scope, table.drain()))

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes that have a table."""
        return frozenset(self._tables)

    @property
    def n_undrained(self) -> int:
        """Observations that wait for `drain`, one a context each time."""
        return sum(table.n_undrained for table in self._tables.values())

    def drain(self) -> list[ScopeDelta]:
        """Return what was learned from verify steps since the last call, coalesced by scope."""
        deltas = [ScopeDelta(scope, table.drain()) for scope, table in self._tables.items() if table.n_undrained]
        deltas, self._left_over = self._left_over + deltas, []
        return deltas

    def merge(self, delta: ScopeDelta) -> None:
        """Add what another drafter learned; a scope without a table is ignored.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        table = self._tables.get(delta.scope)
        if table is not None:
            table.merge(delta.contexts)

    def reload(self, delta: ScopeDelta) -> None:
        """Replace a scope's table by a delta and what waits for `drain`; prompts' laws are lost. Raises as `merge` does."""
        table = self._tables.get(delta.scope)
        if table is not None:
            table.clear()
            table.merge(delta.contexts)
            table.merge(table.undrained())


@dataclass(frozen=True, slots=True)
class _Slots:
    shape: TreeShape
    trajectories: Sequence[_Trajectory]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        return [self._grow(trajectory, n) for trajectory, n in zip(self.trajectories, n_nodes, strict=True)]

    def _grow(self, known: _Trajectory, n_nodes: int) -> DraftTree:
        shape, table = self.shape, known.table
        n_nodes = min(n_nodes, len(shape.parent) - 1)
        committed = known.committed.tokens
        columns, log_q = grow_tree(
            table.index, table.entries, committed, shape.parent, shape.slot, n_nodes, known.seed, known.law
        )
        token, parent, depth, slot, source = columns
        return DraftTree(token, parent, depth, slot, log_q, source, np.zeros_like(source))


def _draft_law(law: SamplingParams) -> DraftLaw:
    return float(law.temperature), int(law.top_k), float(law.top_p), float(law.min_p)


def _as_laws(ids: IntArray, probabilities: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return contiguous arrays of the types that the compiled loops were built for."""
    return np.ascontiguousarray(ids, np.int32), np.ascontiguousarray(probabilities, np.float32)
