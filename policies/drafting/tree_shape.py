"""Static draft trees: which nodes are worth verifying when the n-th child of any node is accepted with a fixed probability.

Source: Sequoia, arXiv 2402.12374, section 4.1; for a non-increasing acceptance vector its dynamic program gives the same
trees as the heap used here.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.records import IntArray

__all__ = ["INITIAL_ACCEPTANCE", "MAX_DEPTH", "STAND_ACCEPTANCE", "TreeShape", "heap_tree"]

STAND_ACCEPTANCE = (0.6, 0.14, 0.06, 0.03, 0.02, 0.012, 0.008, 0.006)
"""A guess at keyed acceptance by draw rank from warm n-gram tables: the heuristic trees, which learned ones should beat."""
INITIAL_ACCEPTANCE = (0.7, 0.12, 0.05, 0.03, 0.02, 0.015, 0.01, 0.008, 0.006, 0.005)
"""For large trees to learn from: wider and deeper than any tree that will be kept."""
MAX_DEPTH = 20
"""Deepest level of heuristic trees."""


@dataclass(frozen=True)
class TreeShape:
    """Nodes by falling worth, the root first, so that the first `n` nodes are the best tree of `n` nodes.

    Attributes:
        parent: `[n]` index of the parent, -1 for the root; every prefix is closed under parents and earlier siblings.
        slot: `[n]` draw rank among siblings, 0 for the root.
        depth: `[n]` distance from the root.
        value: `[n]` probability that the node is accepted; 1 for the root. Their sum is the expected acceptance length.
    """

    parent: IntArray
    slot: IntArray
    depth: IntArray
    value: NDArray[np.float64]


def heap_tree(acceptance: Sequence[float], n_nodes: int, max_depth: int) -> TreeShape:
    """Take the `n_nodes` most valuable nodes below the root, best first; ties go to the node that came up first.

    Args:
        acceptance: probability that the child of this draw rank is the accepted one; positive and non-increasing.
        n_nodes: nodes below the root; fewer when depth and ranks allow no more.
        max_depth: deepest level.

    Raises:
        ValueError: an acceptance vector that is empty, not positive, increasing, or sums to more than 1.
    """
    rates = list(acceptance)
    if not rates or rates != sorted(rates, reverse=True) or rates[-1] <= 0 or sum(rates) > 1:
        raise ValueError(f"acceptance: {acceptance} must be positive and non-increasing, with a sum of at most 1")
    nodes = [(1.0, -1, 0, 0)]  # value, parent, slot, depth
    heap: list[tuple[float, int, int, int]] = []  # -value, arrival, parent, slot
    arrivals = 0

    def offer(parent: int, slot: int) -> None:
        nonlocal arrivals
        if slot < len(rates) and nodes[parent][3] < max_depth:
            heapq.heappush(heap, (-nodes[parent][0] * rates[slot], arrivals, parent, slot))
            arrivals += 1

    offer(0, 0)
    while heap and len(nodes) <= n_nodes:
        value, _, parent, slot = heapq.heappop(heap)
        nodes.append((-value, parent, slot, nodes[parent][3] + 1))
        offer(parent, slot + 1)
        offer(len(nodes) - 1, 0)
    values, parents, slots, depths = zip(*nodes, strict=True)
    return TreeShape(
        np.array(parents, np.int32), np.array(slots, np.int32), np.array(depths, np.int32), np.array(values, np.float64)
    )
