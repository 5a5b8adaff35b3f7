"""Which drafter a new problem gets, by what drafters did for earlier problems of its domain.

An assigned problem is drafted for by one member alone and so teaches nothing about the others. A small share of problems is
left unassigned; there all members are compared. Which ones follows from a hash of the problem's id, so that with the same
reports the same problems are assigned the same drafters.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from tts_orch.policies.routing.report import MemberTally, RoutingReport

__all__ = ["Assignment"]

_ENOUGH_STEPS: Final = 64
"""Verify steps after which a drafter's mean counts: an accepted length has a standard deviation of about 2."""


class Assignment:
    """Assigns drafters to problems.

    Args:
        explored: share of the problems that stays unassigned.
        n_steps: verify steps in a domain that every drafter must have had before any is preferred.
    """

    def __init__(self, explored: float = 1 / 16, n_steps: int = _ENOUGH_STEPS) -> None:
        self._explored = explored
        self._n_steps = n_steps
        self._sums = RoutingReport()

    def learn(self, sums: RoutingReport) -> None:
        """Take all that was reported so far, in place of what was known."""
        self._sums = sums

    def assign(self, problem_id: str, domain: str, drafters: Sequence[str]) -> str:
        """Return the drafter of a new problem, empty for none: all are to be compared.

        It is the one whose trees held most of the committed tokens in this domain, of equals the surer one, then the first.
        """
        tallies = {drafter: self._sums.tallies.get((domain, drafter), MemberTally()) for drafter in drafters}
        if not tallies or min(tally.steps for tally in tallies.values()) < self._n_steps or self._explores(problem_id):
            return ""
        return max(tallies, key=lambda name: (tallies[name].accepted_per_step, tallies[name].mean_confidence))

    def _explores(self, problem_id: str) -> bool:
        digest = hashlib.blake2b(problem_id.encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") < self._explored * 2**64
