"""What a verify step teaches a drafter: the raw laws after its nodes, as `VerifiedStep`s."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch

from tts_orch.engine.laws import RawStatistics, raw_statistics
from tts_orch.engine.verification import Walk
from tts_orch.policies.drafting.draft_tree import TrajectoryId, VerifiedStep
from tts_orch.records import FloatArray, IntArray

__all__ = ["all_laws", "verified_step", "visited_laws"]


def visited_laws(
    walks: Sequence[Walk], counts: Sequence[int], statistics: RawStatistics, first_rows: Sequence[int]
) -> list[tuple[IntArray, FloatArray]]:
    """Return `[n, k]` ids and probabilities by node of each walk's tree; rows of nodes that committed nothing are zero.

    Args:
        walks: finished ones.
        counts: tokens that each committed.
        statistics: one row a visited node.
        first_rows: where each walk's rows begin in them; they follow in the walk's order.
    """
    starts = np.cumsum([0] + [walk.tree.n_nodes for walk in walks])
    parts = list(zip(walks, counts, starts.tolist(), first_rows, strict=False))
    nodes = [start + node for walk, n, start, _ in parts for node in walk.nodes[:n]]
    rows = [row + i for _, n, _, row in parts for i in range(n)]
    shape = (int(starts[-1]), statistics.top_ids.shape[1])
    ids, probs = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
    ids[nodes], probs[nodes] = statistics.top_ids[rows], np.exp(statistics.top_log_probs[rows])
    return [(ids[first:last], probs[first:last]) for first, last in pairwise(starts.tolist())]


def all_laws(walks: Sequence[Walk], logits: torch.Tensor) -> list[tuple[IntArray, FloatArray]]:
    """Return `[n, k]` ids and probabilities of every node of each walk's tree; a row that is no law is zero."""
    rows = np.concatenate([walk.first_row + np.arange(walk.tree.n_nodes) for walk in walks])
    statistics = raw_statistics(logits[torch.from_numpy(rows).to(logits.device)])
    probs = np.exp(statistics.top_log_probs)
    is_lost = np.isnan(statistics.self_certainties)
    statistics.top_ids[is_lost], probs[is_lost] = 0, 0
    ends = np.cumsum([walk.tree.n_nodes for walk in walks])[:-1]
    return list(zip(np.split(statistics.top_ids, ends), np.split(probs, ends), strict=True))


def verified_step(
    trajectory: TrajectoryId, walk: Walk, n_committed: int, laws: tuple[IntArray, FloatArray]
) -> VerifiedStep:
    """Return what a walk taught, up to its last committed token."""
    accepted = np.array(walk.nodes[1 : n_committed + 1], np.int32)
    committed = np.array(walk.tokens[:n_committed], np.int32)
    return VerifiedStep(trajectory, walk.tree, accepted, committed, *laws)
