"""Whether a drafter that is alone is worth its while at all: the pass that was expected to pay is booked as it turned out.

The node budget weighs one node against another by what it expects. Here the outcome is booked (`DraftAccount`): tokens that drafts
brought against the time of their rows, by the measured cost curve, and of drafting and learning, by the clock.

Source: ours.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tts_orch.policies.drafting.draft_account import ALLOWANCE, DraftAccount
from tts_orch.policies.drafting.draft_size import Seconds

__all__ = ["DraftBalance"]

_MOST_OF_LEARNING: Final = 1.0
"""Tokens that can be saved up for learning, and its deepest debt."""


class DraftBalance:
    """Books what drafting brings and costs.

    Learning in passes without drafts has an account of its own, so that it goes on where nothing is found to draft; success fills
    both, whichever trajectory of the batch had it.

    Args:
        seconds: cost of passes by their rows.
    """

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._drafts = DraftAccount()
        self._learning = _MOST_OF_LEARNING

    @property
    def affords_drafts(self) -> bool:
        """Whether the next pass may draft."""
        return self._drafts.affords_drafts

    @property
    def affords_learning(self) -> bool:
        """Whether the drafter may learn from this pass."""
        return self._learning >= 0.0

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
        tokens_a_second, gain = n_roots / plain, 0.0
        if n_drafts or (drafting and self.affords_drafts):
            if n_drafts:  # else it learned in the time that any drafter needs to keep up
                drafting += learning
            worth = n_gained - (with_drafts - without) * tokens_a_second
            gain = worth - self._drafts.book(worth, drafting, plain, n_roots) * tokens_a_second
        if not n_drafts and self.affords_learning:
            self._learning -= learning * tokens_a_second
        self._drafts.add_allowance(n_roots)
        learning_credit = self._learning + max(gain, 0.0) + ALLOWANCE * n_roots
        self._learning = float(np.clip(learning_credit, -_MOST_OF_LEARNING, _MOST_OF_LEARNING))
