"""Whether drafts are worth their while at all: they live on what they earned, and on a small allowance.

The node budget weighs one node against another by what it expects. Here the outcome is booked: tokens that drafts brought
against the time of their rows, by the measured cost curve, and of drafting and learning, by the clock. Where the account is
empty drafting rests until the allowance has filled it again, so that over any stretch drafts cost little more than that.

Source: ours. It is a token bucket that is filled by success.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["DraftBalance"]

Seconds: TypeAlias = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_ALLOWANCE: Final = 0.005
"""Share of the time that drafts may cost without bringing anything; as much again may go into learning meanwhile."""
_GRANT: Final = 4.0
"""Tokens on the account at first."""
_MOST: Final = 16.0
"""Tokens that can be saved up. Some passes are lucky and some are not: with less, drafts that pay in the mean would rest
now and then; what is saved can be lost when a workload changes."""


class DraftBalance:
    """Books what drafting brings and costs, in tokens: a pass is worth one for each trajectory that commits in it.

    Args:
        seconds: cost of passes by their rows.
    """

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._drafting = _GRANT
        self._learning = 0.0

    @property
    def affords_drafts(self) -> bool:
        """Whether the next pass may draft."""
        return self._drafting >= 0.0

    @property
    def affords_learning(self) -> bool:
        """Whether the drafter may learn from this pass."""
        return self.affords_drafts or self._learning >= 0.0

    def book(
        self, n_roots: int, n_drafts: int, other_rows: int, n_gained: int, drafting: float, learning: float
    ) -> None:
        """Settle one pass.

        Args:
            n_roots: trajectories that committed in it.
            n_drafts: draft nodes.
            other_rows: rows besides roots and drafts.
            n_gained: tokens committed beyond one for each root.
            drafting: seconds that the drafts took beside the pass itself.
            learning: seconds that learning took.
        """
        rows = n_roots + other_rows
        plain, without, with_drafts = self._seconds(np.array([n_roots, rows, rows + n_drafts], np.float64)).tolist()
        tokens_a_second, allowance = n_roots / plain, _ALLOWANCE * n_roots
        if self.affords_drafts:
            drafting += learning
        else:
            self._learning = min(self._learning + allowance - learning * tokens_a_second, allowance)
        earned = n_gained - (with_drafts - without + drafting) * tokens_a_second
        self._drafting = min(max(self._drafting + earned + allowance, -_GRANT), _MOST)
