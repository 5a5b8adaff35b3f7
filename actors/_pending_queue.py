"""Candidates that wait for a verifier."""

from __future__ import annotations

import bisect
from collections.abc import Collection, Sequence

from tts_orch.actors._live_candidate import LiveCandidate
from tts_orch.actors._verifier_link import VerifierLink

__all__ = ["PendingQueue"]


class PendingQueue:
    """Candidates that no verifier holds, in order of their rank."""

    def __init__(self) -> None:
        self._entries: list[LiveCandidate] = []

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, candidate: LiveCandidate) -> None:
        """Add a candidate."""
        bisect.insort(self._entries, candidate, key=lambda entry: entry.rank)

    def remove(self, candidate: LiveCandidate) -> bool:
        """Take a candidate out; returns whether it was there."""
        if candidate not in self._entries:
            return False
        self._entries.remove(candidate)
        return True

    def pop_all_but(self, fingerprints: Collection[str]) -> list[LiveCandidate]:
        """Take out every candidate that no verifier of these fingerprints may go on with."""
        out = [entry for entry in self._entries if not fingerprints or not entry.may_run_on(fingerprints)]
        self._entries = [entry for entry in self._entries if entry not in out]
        return out

    def pop_for(self, link: VerifierLink, links: Sequence[VerifierLink], share: int) -> LiveCandidate | None:
        """Take out the candidate that this verifier should decode next, None if there is none that it may.

        What another verifier has computed, and has room for, is left to it.

        Priority comes first; within it, a candidate that goes on from what the verifier has computed, then one of a problem
        that it works on (they share the prompt), then one of which no other verifier has more, then the first in the queue.
        A candidate with tokens goes to a verifier of its fingerprint only.

        Args:
            link: the verifier.
            links: all of them.
            share: candidates that each may hold, so that all have work.
        """
        here = {candidate.problem_id for candidate in link.live.values()}
        others = [other for other in links if other is not link]
        elsewhere = {live.problem_id for other in others for live in other.live.values()}

        def preference(entry: LiveCandidate) -> tuple[int, int]:
            if link.holds_prefix_of(entry):
                return entry.rank[0], 0
            if entry.problem_id in here:
                return entry.rank[0], 1
            return entry.rank[0], 3 if entry.problem_id in elsewhere else 2

        def is_kept_for_another(entry: LiveCandidate) -> bool:
            return not link.holds_prefix_of(entry) and any(
                other.holds_prefix_of(entry) and other.has_room(share) and entry.may_run_on((other.fingerprint,))
                for other in others
            )

        allowed = [
            entry for entry in self._entries if entry.may_run_on((link.fingerprint,)) and not is_kept_for_another(entry)
        ]
        chosen = min(allowed, key=preference, default=None)
        if chosen is not None:
            self._entries.remove(chosen)
        return chosen
