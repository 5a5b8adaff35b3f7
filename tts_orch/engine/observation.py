"""What a verify step teaches a drafter: the raw laws after its nodes, as `VerifiedStep`s."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import torch

from tts_orch.engine.laws import RawStatistics, raw_statistics
from tts_orch.engine.verification import Walk
from tts_orch.policies.drafting.draft_tree import TrajectoryId, VerifiedStep
from tts_orch.records import FloatArray, IntArray

__all__ = ["laws_by_node", "no_laws", "verified_step"]


def laws_by_node(
    walks: Sequence[Walk],
    counts: Sequence[int],
    statistics: RawStatistics,
    first_rows: Sequence[int],
    logits: torch.Tensor | None,
) -> list[tuple[IntArray, FloatArray]]:
    """Return `[n, k]` ids and probabilities by node of each walk's tree.

    Args:
        walks: finished ones.
        counts: tokens that each committed.
        statistics: one row a visited node.
        first_rows: where each walk's rows begin in them; they follow in the walk's order.
        logits: of all nodes, for the laws of those that committed nothing; without them these stay zero, as does
            whatever is no law.
    """
    starts = list(accumulate((walk.tree.n_nodes for walk in walks), initial=0))
    parts = list(zip(walks, counts, starts, first_rows, strict=False))
    nodes = [start + node for walk, n, start, _ in parts for node in walk.nodes[:n]]
    rows = [row + i for _, n, _, row in parts for i in range(n)]
    shape = (starts[-1], statistics.top_ids.shape[1])
    ids, probs = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    ids[nodes], probs[nodes] = statistics.top_ids[rows], np.exp(statistics.top_log_probs[rows])
    if logits is not None and len(nodes) < starts[-1]:
        others = np.delete(np.arange(starts[-1]), nodes)
        offsets = np.repeat(
            [walk.first_row - start for walk, start in zip(walks, starts, strict=False)], np.diff(starts)
        )
        ids[others], probs[others] = _laws(logits[torch.from_numpy(others + offsets[others]).to(logits.device)])
    return [(ids[first:last], probs[first:last]) for first, last in pairwise(starts)]


def no_laws(walks: Sequence[Walk], k: int) -> list[tuple[IntArray, FloatArray]]:
    """Return `[n, k]` zeros for the nodes of each walk's tree: nothing is to be learned."""
    shapes = [(walk.tree.n_nodes, k) for walk in walks]
    return [(np.zeros(shape, np.int32), np.zeros(shape, np.float32)) for shape in shapes]


def _laws(logits: torch.Tensor) -> tuple[IntArray, FloatArray]:
    statistics = raw_statistics(logits)
    is_lost = np.isnan(statistics.self_certainties)
    statistics.top_ids[is_lost], statistics.top_log_probs[is_lost] = 0, -np.inf
    return statistics.top_ids, np.exp(statistics.top_log_probs)


def verified_step(
    trajectory: TrajectoryId, walk: Walk, n_committed: int, laws: tuple[IntArray, FloatArray]
) -> VerifiedStep:
    """Return what a walk taught, up to its last committed token."""
    accepted = np.array(walk.nodes[1 : n_committed + 1], np.int32)
    committed = np.array(walk.tokens[:n_committed], np.int32)
    return VerifiedStep(trajectory, walk.tree, accepted, committed, *laws)
