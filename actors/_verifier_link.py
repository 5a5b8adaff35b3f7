"""A controller's view of a verifier: what it can be asked, what it holds, what it has not confirmed yet."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from typing import Final, Protocol

from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._held_prefixes import HeldPrefixes, prefix_digest
from tts_orch.actors._live_candidate import LiveCandidate
from tts_orch.actors.target_verifier import VerifierDescription
from tts_orch.errors import WorkerLostError
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest

__all__ = ["Verifier", "VerifierLink"]

_MISSED_REPLIES: Final = 3
_PREFETCH: Final = 0.25  # requests that wait at the verifier beside the running ones, so that no place stays empty


class Verifier(Protocol):
    """A verifier in another process."""

    @property
    def description(self) -> VerifierDescription:
        """Who it is."""
        ...

    async def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
    ) -> tuple[int, list[Chunk]]:
        """Do as `TargetVerifierCore.exchange`; raises TimeoutError if no reply arrives, WorkerLostError if none will."""
        ...

    async def order(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        """Take orders beside a running `exchange`; raises as that does."""
        ...

    async def ping(self) -> None:
        """Return if the process is alive; raises as `exchange` does."""
        ...

    async def statistics(self) -> dict[str, float]:
        """Return the decoder's counters; raises as `exchange` does."""
        ...

    async def routing_report(self) -> RoutingReport:
        """Return what its drafters did since it was asked last; raises as `exchange` does."""
        ...

    async def change_drafter(self, change: DrafterChange) -> None:
        """Draft with changed drafters; raises `UserError` where they do not suit, else as `exchange` does."""
        ...

    async def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope; raises as `exchange` does."""
        ...

    async def close(self) -> None:
        """Let it finish its step, send what it has to send and end; never raises."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class VerifierLink:
    """One verifier with the candidates it holds, and what it has not yet confirmed.

    Attributes:
        window: candidates that it should hold at most.
        live: the candidates that it holds, by the id they have there.
        has_work: set when there may be something new for it.
        is_useful: whether it has brought a candidate to its end.
        is_leaving: whether its node is about to leave.
        is_relieved: whether all its candidates were asked back, to go on elsewhere.
    """

    def __init__(self, verifier: Verifier) -> None:
        self.is_useful = self.is_leaving = self.is_relieved = False
        self.verifier = verifier
        self.window = math.ceil(verifier.description.capacity * (1 + _PREFETCH))
        self.live: dict[str, LiveCandidate] = {}
        self._held = HeldPrefixes()
        self.has_work = asyncio.Event()
        self._submitting: dict[str, DecodeRequest] = {}
        self._cancelling: set[str] = set()
        self._sent: set[str] = set()
        self._acknowledged = 0

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the verifier's numerics."""
        return self.verifier.description.fingerprint

    @property
    def is_busy(self) -> bool:
        """Whether there is something to ask the verifier for."""
        return bool(self.live or self._cancelling)

    def has_room(self, share: int) -> bool:
        """Whether the verifier should hold more candidates, if each holds `share` of them."""
        return len(self.live) < min(share, self.window)

    def take(self, candidate: LiveCandidate) -> None:
        """Give the verifier a candidate, with the next orders."""
        candidate.worker, candidate.fingerprint = self.verifier.description.worker, self.fingerprint
        request = candidate.remaining_request()
        self.live[request.candidate_id] = candidate
        self._submitting[request.candidate_id] = request
        self._held.add(candidate.prefix)

    def drop(self, candidate_id: str) -> None:
        """Forget a candidate that ended; the verifier still has the keys and values of its tokens."""
        candidate = self.live.pop(candidate_id)
        self._held.add(prefix_digest(candidate.problem_id, candidate.token_ids))

    def holds_prefix_of(self, candidate: LiveCandidate) -> bool:
        """Whether the verifier has computed, or is about to, what a candidate goes on from."""
        return candidate.prefix in self._held

    def cancel(self, candidate: LiveCandidate) -> None:
        """Have a candidate cancelled, soon; one that is elsewhere is ignored."""
        attempts = [attempt for attempt, live in self.live.items() if live is candidate]
        if attempts:
            self._cancelling.update(attempts)
            self.has_work.set()

    def relieve(self) -> None:
        """Ask for all candidates back, with every token that was generated."""
        self.is_relieved = True
        self._cancelling.update(self.live)
        self.has_work.set()

    async def order(self) -> None:
        """Send the orders that a running exchange does not know of; where no reply arrives, the next one has them.

        Raises:
            WorkerLostError: the verifier died.
        """
        submit = [request for name, request in self._submitting.items() if name not in self._sent]
        cancel = sorted(self._cancelling - self._submitting.keys())  # what is to be cancelled must be there
        if submit or cancel:
            with contextlib.suppress(TimeoutError):
                await self.verifier.order(submit, cancel)
                self._confirm(submit, cancel)

    async def exchange(self) -> list[Chunk]:
        """Send orders and return new chunks; orders that were not confirmed are sent again.

        Raises:
            WorkerLostError: the verifier died, or its process lives but several replies failed to arrive.
            TimeoutError: nothing arrives, a ping's answer neither.
        """
        for _ in range(_MISSED_REPLIES):
            submit, cancel = list(self._submitting.values()), sorted(self._cancelling)
            self._sent = set(self._submitting)
            try:
                self._acknowledged, chunks = await self.verifier.exchange(submit, cancel, self._acknowledged)
            except TimeoutError:
                await self.verifier.ping()
                continue
            self._confirm(submit, cancel)
            return chunks
        raise WorkerLostError(f"{_MISSED_REPLIES} replies in a row did not arrive")

    def _confirm(self, submitted: Sequence[DecodeRequest], cancelled: Sequence[str]) -> None:
        for request in submitted:
            self._submitting.pop(request.candidate_id, None)
        self._cancelling.difference_update(cancelled)
