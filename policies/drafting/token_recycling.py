"""Token Recycling: the target's last candidates after each token, laid out on a fixed tree.

A matrix holds, for every token of the vocabulary, what the target found most probable the last time it stood after that
token, wherever that was: on the committed path, on a rejected draft node, in a prompt. Rows are replaced, never averaged,
and know nothing of what stood before their token.

Source: arXiv 2408.08696. Ours: rows that were never written, which the paper fills with token 0, give no nodes; the
matrix is kept by scope (the paper's is that of a run); and the tree, of which the paper gives the sizes of the levels, is
the best one of these sizes when the n-th candidate is the right one with a fixed probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import (
    DraftTree,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
    WithoutFeatures,
)
from tts_orch.policies.drafting.token_buffer import TokenBuffer
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import FloatArray, IntArray

__all__ = ["LEVEL_SIZES", "RANK_ACCEPTANCE", "TokenRecycling", "levelled_tree"]

N_CANDIDATES: Final = 8
LEVEL_SIZES = (8, 21, 25, 15, 8, 3)
"""Nodes at depth 1, 2, ... of the paper's tree: 80 in all."""
RANK_ACCEPTANCE = (0.4, 0.12, 0.06, 0.04, 0.03, 0.022, 0.018, 0.015)
"""How often each candidate of a row came next, measured at T=0.7 on reasoning, code and chat; nearly equal at all levels."""


def levelled_tree(acceptance: Sequence[float], level_sizes: Sequence[int]) -> TreeShape:
    """Return the tree with the most valuable nodes under given sizes of its levels, nodes by falling value.

    Each level takes its nodes among the children of the level above; ties go to earlier parents, then earlier siblings.

    Args:
        acceptance: probability that the child of this draw rank is the accepted one; positive and non-increasing.
        level_sizes: nodes at depth 1, 2, ...
    """
    nodes = [(1.0, -1, 0, 0)]  # value, parent, slot, depth
    level = range(1)
    for depth, size in enumerate(level_sizes, start=1):
        children = [
            (nodes[above][0] * rate, above, slot, depth) for above in level for slot, rate in enumerate(acceptance)
        ]
        level = range(len(nodes), len(nodes) + min(size, len(children)))
        nodes += sorted(children, key=_falling_value)[:size]
    order = sorted(range(len(nodes)), key=lambda node: _falling_value(nodes[node]))
    place = {node: i for i, node in enumerate(order)}
    values, parents, slots, depths = zip(*(nodes[node] for node in order), strict=True)
    return TreeShape(
        np.array([place.get(parent, -1) for parent in parents], np.int32),
        np.array(slots, np.int32),
        np.array(depths, np.int32),
        np.array(values, np.float64),
    )


def _falling_value(node: tuple[float, int, int, int]) -> float:
    return -node[0]


@dataclass(frozen=True, slots=True)
class _Trajectory:
    committed: TokenBuffer
    candidates: IntArray  # [V, 8] of its scope, -1 for none


class TokenRecycling(WithoutFeatures):
    """A `Drafter` with a matrix of candidates for each scope; `source` is 1, `kind` the rank in the row.

    Args:
        vocabulary_size: token ids are below it.
        shape: the fixed tree; it has at most 8 children a node.
    """

    learns_from_rejected = True
    learns_prompt_laws = True

    def __init__(self, vocabulary_size: int, shape: TreeShape | None = None) -> None:
        self._vocabulary_size = vocabulary_size
        self._shape = shape or levelled_tree(RANK_ACCEPTANCE, LEVEL_SIZES)
        self._candidates: dict[str, IntArray] = {}
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with, by rank."""
        return np.array(RANK_ACCEPTANCE)

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory; the first one of a scope creates its matrix, 32 bytes a token of the vocabulary."""
        candidates = self._candidates.get(start.scope)
        if candidates is None:
            candidates = np.full((self._vocabulary_size, N_CANDIDATES), -1, np.int32)
            self._candidates[start.scope] = candidates
        self._trajectories[start.trajectory] = _Trajectory(TokenBuffer(start.token_ids), candidates)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories at their committed positions."""
        return _Slots(self._shape, [self._trajectories[trajectory] for trajectory in trajectories])

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Replace the rows of the prompt's tokens; the last place of a token counts."""
        known = self._trajectories[trajectory]
        tokens = known.committed.tokens[start : start + len(law_ids)]
        _learn(known.candidates, tokens, law_ids, law_probs)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Replace the rows of all verified tokens, rejected ones too; of equal tokens the last node counts."""
        for step in steps:
            known = self._trajectories[step.trajectory]
            _learn(known.candidates, step.tree.token, step.law_ids, step.law_probs)
            known.committed.append(step.committed)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; the matrix of its scope stays."""
        self._trajectories.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Drop the matrix of a scope."""
        self._candidates.pop(scope, None)


@dataclass(frozen=True, slots=True)
class _Slots:
    shape: TreeShape
    trajectories: Sequence[_Trajectory]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        return [self._grow(trajectory, n) for trajectory, n in zip(self.trajectories, n_nodes, strict=True)]

    def _grow(self, known: _Trajectory, n_nodes: int) -> DraftTree:
        shape, root = self.shape, known.committed.tokens[-1]
        token, parent, depth, slot, source = _lay_out(known.candidates, root, shape.parent, shape.slot, n_nodes)
        return DraftTree(token, parent, depth, slot, np.zeros(len(token), np.float32), source, kind=slot)


def _learn(candidates: IntArray, tokens: IntArray, law_ids: IntArray, law_probs: FloatArray) -> None:
    """Replace rows, with arrays of the types that the compiled loop was built for."""
    _replace(candidates, tokens, np.ascontiguousarray(law_ids, np.int32), np.ascontiguousarray(law_probs, np.float32))


@numba.njit(cache=True)
def _replace(candidates: IntArray, tokens: IntArray, law_ids: IntArray, law_probs: FloatArray) -> None:
    """Write the most probable ids after each token into its row, in order; a row without any probability is no law."""
    n_ids = law_ids.shape[1]
    for i in range(len(tokens)):
        if n_ids == 0 or law_probs[i, 0] <= 0:
            continue
        for rank in range(N_CANDIDATES):
            is_known = rank < n_ids and law_probs[i, rank] > 0
            candidates[tokens[i], rank] = law_ids[i, rank] if is_known else -1


@numba.njit(cache=True)
def _lay_out(candidates: IntArray, root: int, shape_parent: IntArray, shape_slot: IntArray, n_nodes: int) -> IntArray:
    """Fill a shape's slots in order until the tree has enough nodes; unknown candidates and all below them stay out.

    Returns:
        `[5, n]` token, parent, depth, slot and source of a `DraftTree`.
    """
    n_places = len(shape_parent)
    columns = np.zeros((5, min(n_nodes + 1, n_places)), np.int32)
    token, parent, depth, slot, source = columns
    token[0], parent[0] = root, -1
    node_of = np.full(n_places, -1, np.int32)  # place in the shape -> node
    node_of[0] = 0
    n = 1
    for place in range(1, n_places):
        if n > n_nodes:
            break
        above, rank = node_of[shape_parent[place]], shape_slot[place]
        candidate = candidates[token[above], rank] if above >= 0 else -1
        if candidate >= 0:
            node_of[place] = n
            token[n], parent[n], depth[n], slot[n] = candidate, above, depth[above] + 1, rank
            source[n] = 1
            n += 1
    return columns[:, :n]
