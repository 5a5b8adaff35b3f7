"""Learned draft trees: which slots of a large static tree earn their place, counted in real verify steps.

A slot may be kept only with its parent and all earlier siblings: without these the drafter would draw other tokens into
it. So every slot waits for one other, its earlier sibling or else its parent, and the question is which closed sets are
accepted most. Taking slots by falling count would answer it if counts never rose along such a wait. Between parent and
child they cannot; between siblings they can, by chance or because a poor law ranks badly. Then the later slot is bundled
with what it waits for, and bundles are taken by their average count: the classic order of jobs under tree precedence.

The order is the best one for all sizes together (no closed order has a larger sum of prefix sums), and a prefix that ends
with a bundle is the best tree of its size; where counts do not rise, every prefix is.

Source: STAND, arXiv 2506.04708, section 3.4. Order: W. A. Horn, SIAM J. Appl. Math. 23 (1972), 189-202.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.drafting.tree_shape import TreeShape

__all__ = ["SlotCounts", "optimize"]


class SlotCounts:
    """How often each slot of a static tree was on the accepted path.

    Args:
        shape: the tree that the verified trees filled.

    Attributes:
        accepted: `[n]` verify steps that accepted the slot; those of the root are all verify steps.
    """

    def __init__(self, shape: TreeShape) -> None:
        places = zip(shape.parent.tolist(), shape.slot.tolist(), strict=True)
        self._places = {place: number for number, place in enumerate(places)}
        self.accepted: NDArray[np.int64] = np.zeros(len(shape.parent), np.int64)

    @property
    def verify_steps(self) -> int:
        """Verify steps counted."""
        return int(self.accepted[0])

    def add(self, steps: Sequence[VerifiedStep]) -> None:
        """Count verify steps; a node's slot is told by the draw ranks on the path to it.

        Raises:
            KeyError: a tree has a node for which the shape has no slot.
        """
        for step in steps:
            place = 0
            self.accepted[place] += 1
            for rank in step.tree.slot[step.accepted].tolist():
                place = self._places[place, rank]
                self.accepted[place] += 1


def optimize(shape: TreeShape, accepted: NDArray[np.int64], n_nodes: int) -> tuple[TreeShape, NDArray[np.int64]]:
    """Return the slots of a tree that were accepted most, best first, as a tree of its own.

    Every prefix is closed under parents and earlier siblings. Slots of equal worth keep the order they have in `shape`.

    Args:
        shape: the tree that was counted; parents and earlier siblings come first.
        accepted: `[n]` of `SlotCounts`.
        n_nodes: nodes to keep below the root; fewer where the tree has no more.

    Returns:
        The learned tree, its `value` the share of verify steps that accepted the node, and `accepted` of its nodes.

    Raises:
        ValueError: nothing was counted.
    """
    if accepted[0] == 0:
        raise ValueError("no verify step was counted")
    kept = np.array([0, *_best_first(shape, accepted.tolist())[:n_nodes]])
    new_number = np.full(len(shape.parent), -1, np.int32)
    new_number[kept] = np.arange(len(kept))
    parent = np.where(kept > 0, new_number[shape.parent[kept]], np.int32(-1))
    learned = TreeShape(parent, shape.slot[kept], shape.depth[kept], accepted[kept] / accepted[0])
    return learned, accepted[kept]


@dataclass(slots=True)
class _Bundle:
    """Slots that are taken together, in this order, and the bundles that wait for them, a heap."""

    slots: list[int]
    total: int
    waiting: list[_Bundle] = field(default_factory=list)

    def is_richer(self, other: _Bundle) -> bool:
        return self.total * len(other.slots) > other.total * len(self.slots)

    def __lt__(self, other: _Bundle) -> bool:
        return self.is_richer(other) or (not other.is_richer(self) and self.slots[0] < other.slots[0])

    def absorb_richer(self) -> None:
        """Take in waiting bundles for as long as they raise the average."""
        while self.waiting and self.waiting[0].is_richer(self):
            richest = heapq.heappop(self.waiting)
            self.slots += richest.slots
            self.total += richest.total
            for bundle in richest.waiting:
                heapq.heappush(self.waiting, bundle)


def _best_first(shape: TreeShape, counts: Sequence[int]) -> list[int]:
    """Return all slots but the root, a slot behind the one it waits for."""
    bundles = [_Bundle([slot], count) for slot, count in enumerate(counts)]
    before = _slots_waited_for(shape)
    for slot in range(len(bundles) - 1, 0, -1):  # what waits for a slot has a larger number and is complete
        bundles[slot].absorb_richer()
        heapq.heappush(bundles[before[slot]].waiting, bundles[slot])
    ready, order = bundles[0].waiting, []
    while ready:
        richest = heapq.heappop(ready)
        order += richest.slots
        for bundle in richest.waiting:
            heapq.heappush(ready, bundle)
    return order


def _slots_waited_for(shape: TreeShape) -> list[int]:
    """Return for each slot the earlier sibling, for a first child the parent, -1 for the root."""
    places = list(zip(shape.parent.tolist(), shape.slot.tolist(), strict=True))
    number = {place: slot for slot, place in enumerate(places)}
    return [number[parent, rank - 1] if rank else parent for parent, rank in places]
