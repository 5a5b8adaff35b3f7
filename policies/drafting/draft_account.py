"""What a drafter brought and cost, in tokens: it lives on that, on a first credit, and on a small allowance.

A pass is worth one token for each trajectory that commits in it, so that time is booked as the tokens that plain decoding would
have brought in it. A drafter whose account is empty rests until its allowance has filled it again; so over any stretch drafts that
do not pay cost the allowance, and the first credit once. Then it is tried again: if the pass pays it goes on, else it owes what that
cost, so that trials are the rarer the dearer they are. What it takes to catch up after a rest is owed too, but no reason to rest.

Source: ours. It is a token bucket that is filled by success.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ALLOWANCE", "LONGEST", "DraftAccount"]

ALLOWANCE: Final = 0.003
"""Share of the time that each drafter is given."""
_FIRST: Final = 32.0
"""Tokens that it has at first: by 64 trees that cost half a token each one sees whether they bring as much."""
_MOST: Final = 64.0
"""Tokens that it can save up, and lose when texts become others."""
_WEIGHT: Final = 1 / 4
"""Of the newest pass in the mean time of one."""
LONGEST: Final = 4.0
"""Drafting that takes more than so many means is a pause of the machine, or a compilation, and counts as so many."""
_PRESUMED: Final = 1 / 8
"""That mean before the first pass, as a share of a pass without drafts."""


class DraftAccount:
    """A drafter's account."""

    def __init__(self) -> None:
        self._tokens = _FIRST
        self._is_resting = False
        self._means: dict[bool, float] = {}  # seconds of a pass, by whether it comes after a rest
        self._excused = 0.0  # tokens that it may owe and go on

    @property
    def affords_drafts(self) -> bool:
        """Whether the drafter may draft in the next pass."""
        return self._tokens >= 0.0 or not self._is_resting

    @property
    def is_on_trial(self) -> bool:
        """Whether it may do so after a rest."""
        return self._is_resting and self._tokens >= 0.0

    def add_allowance(self, n_roots: int) -> None:
        """Give the drafter its share of a pass in which so many trajectories committed."""
        self._tokens = min(self._tokens + ALLOWANCE * n_roots, _MOST)

    def book(self, worth: float, seconds: float, plain: float, n_roots: int) -> float:
        """Settle a pass in which it drafted.

        What always takes long is believed step by step, so that no two pauses of the machine stop a drafter for long.

        Args:
            worth: tokens that it brought, less those that the time of its rows would have.
            seconds: that it took, by the clock.
            plain: that the pass would have taken without drafts.
            n_roots: trajectories that committed in it.

        Returns:
            The seconds that it takes without pauses and compilations.
        """
        tokens_a_second = n_roots / plain
        usual = self._means.get(False, _PRESUMED * plain)
        mean = self._means.get(self._is_resting, usual)
        seconds = min(seconds, LONGEST * mean)
        self._means[self._is_resting] = mean + _WEIGHT * (seconds - mean)
        self._tokens = min(self._tokens + worth - seconds * tokens_a_second, _MOST)
        if self._is_resting:
            self._excused = max(seconds - usual, 0.0) * tokens_a_second
        if self._tokens >= 0.0:
            self._excused = 0.0
        self._is_resting = self._tokens < -self._excused
        return seconds
