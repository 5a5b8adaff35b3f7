"""How many draft nodes of each trajectory are verified in a pass: always the same number, or as many as pay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree, SlotSource, VerifiedStep

__all__ = ["DraftSize", "FixedSize", "Seconds"]

Seconds: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Cost of passes, in seconds, by their numbers of rows."""


class DraftSize(Protocol):
    """Takes draft nodes from a source, and learns from what became of them."""

    def draft(self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int, n_roots: int) -> list[DraftTree]:
        """Return the trees to verify in one pass.

        Args:
            source: slots of the trajectories that draft.
            rooms: `[b]` deepest level at which a node of each could still be committed.
            other_rows: rows of the pass besides these trajectories' roots and drafts.
            n_roots: trajectories that commit in this pass, `b` or more; the others decode plainly.
        """
        ...

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from verified trees."""
        ...


class FixedSize:
    """Trees of a fixed number of nodes, or of fewer where the drafter has no more.

    Args:
        n_nodes: nodes below each root.
    """

    def __init__(self, n_nodes: int) -> None:
        self._n_nodes = n_nodes

    def draft(self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int, n_roots: int) -> list[DraftTree]:
        """Return the source's trees, without the nodes that could never be committed."""
        trees = source.grow([self._n_nodes] * len(rooms))
        return [tree.subtree(tree.depth <= room) for tree, room in zip(trees, rooms, strict=True)]

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Do nothing: the size is fixed."""
