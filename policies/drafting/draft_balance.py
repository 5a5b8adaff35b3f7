"""Whether drafts are worth their while at all: they live on what they earned, and on a small allowance.

The node budget weighs one node against another by what it expects. Here the outcome is booked: tokens that drafts brought
against the time of their rows, by the measured cost curve, and of drafting and learning, by the clock. Where an account is
empty that work rests until the allowance has filled it again, so that over any stretch it costs little more than that.

Source: ours. It is a token bucket that is filled by success.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

import numpy as np

from tts_orch.policies.drafting.draft_size import Seconds

__all__ = ["DraftBalance"]

_ALLOWANCE: Final = 0.003
"""Share of the time that each account is given."""
_MOST: Final = 64.0
"""Tokens that drafts can save up, and that they have at first. Some passes are lucky and some are not, and tables begin empty:
with 4, drafts that make single trajectories faster came to rest before they had learned enough."""
_SMALL_MOST: Final = 1.0
"""The same for looking in vain and for learning, and the deepest debt of the latter."""
_LOOKS: Final = 3
"""Newest times of looking in vain, of which the median is booked: a single long one is a pause of the machine, or a compilation,
but looks that always take long, as those of a network may, are the rarer for it."""


class DraftBalance:
    """Books what drafting brings and costs, in tokens: a pass is worth one for each trajectory that commits in it.

    There are three accounts: of the passes that verified drafts, of drafting that found nothing worth a row, and of learning
    in passes without drafts. Success fills all of them, whichever trajectory of the batch had it.

    Args:
        seconds: cost of passes by their rows.
    """

    def __init__(self, seconds: Seconds) -> None:
        self._seconds = seconds
        self._drafts, self._idle, self._learning = _MOST, _SMALL_MOST, _SMALL_MOST
        self._looks = deque([0.0] * _LOOKS, maxlen=_LOOKS)

    @property
    def affords_drafts(self) -> bool:
        """Whether the next pass may draft."""
        return self._drafts >= 0.0 and self._idle >= 0.0

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
        drafting = min(drafting, plain)  # what takes longer than a pass is a pause of the machine, or a compilation
        learning = min(learning, plain)
        allowance, tokens_a_second = _ALLOWANCE * n_roots, n_roots / plain
        earned = n_gained - (with_drafts - without + drafting + learning) * tokens_a_second if n_drafts else 0.0
        success = max(earned, 0.0)
        if not n_drafts and drafting and self.affords_drafts:
            self._looks.append(drafting)
            self._idle -= median(self._looks) * tokens_a_second
        if not n_drafts and self.affords_learning:  # else it took the time that any drafter needs to keep up
            self._learning -= learning * tokens_a_second
        self._drafts = min(self._drafts + earned + allowance, _MOST)
        self._idle = min(self._idle + success + allowance, _SMALL_MOST)
        self._learning = float(np.clip(self._learning + success + allowance, -_SMALL_MOST, _SMALL_MOST))
