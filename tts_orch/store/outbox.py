"""The batches that one writer sends: those that wait, and those sent, in case the store loses them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.wire import pack

__all__ = ["Batch", "Outbox"]

_RESEND_PAUSE_S = 5.0  # a server that evicts what it gets shall not get it all the time


@dataclass(frozen=True, slots=True)
class Batch:
    """A packed delta, with the writer's number for it."""

    scope: str
    sequence: int
    n_contexts: int
    blob: bytes


class Outbox:
    """Numbers batches and keeps their order; of what was sent, as much as is allowed.

    Args:
        max_bytes: of batches that are kept after they were sent; the oldest go first.
        clock: seconds, monotone.

    Attributes:
        next_sequence: number of the next batch.
        n_waiting: contexts of the batches that wait.
        n_resent: batches that a store has lost and got again.
        n_lost: contexts of batches that a store has lost and that were kept no more.
    """

    def __init__(self, max_bytes: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._max_bytes = max_bytes
        self._clock = clock
        self._waiting: deque[Batch] = deque()
        self._sent: deque[Batch] = deque()
        self._sent_bytes = 0
        self._forgotten: dict[str, list[tuple[int, int]]] = {}  # sequence and contexts of what was sent, by scope
        self._last: dict[str, int] = {}
        self._resent_at: dict[str, float] = {}
        self.next_sequence = 0
        self.n_waiting = 0
        self.n_resent = 0
        self.n_lost = 0

    @property
    def first(self) -> Batch | None:
        """The batch to send now, None when none waits."""
        return self._waiting[0] if self._waiting else None

    def put(self, scope: str, deltas: Sequence[ContextDelta]) -> None:
        """Make deltas of a scope the last batch."""
        contexts = coalesce(deltas)
        self._waiting.append(Batch(scope, self.next_sequence, contexts.n_contexts, pack(contexts)))
        self.next_sequence += 1
        self.n_waiting += contexts.n_contexts

    def previous(self, scope: str) -> int:
        """Return the number of the last batch of a scope that the store should have, -1 for none."""
        return self._last.get(scope, -1)

    def acknowledge(self, last: int) -> bool:
        """Take note of the store's answer to the first batch.

        Args:
            last: number of the last batch that it has of this writer and scope. Where it has lost some, those come first
                from now on.

        Returns:
            Whether to go on with the first batch; False where the store loses what it gets, so that it can wait.
        """
        batch = self._waiting[0]
        if last < batch.sequence:
            return self._resend(batch.scope, last)
        self._waiting.popleft()
        self.n_waiting -= batch.n_contexts
        self._last[batch.scope] = batch.sequence
        self._sent.append(batch)
        self._sent_bytes += len(batch.blob)
        while self._sent_bytes > self._max_bytes:
            old = self._sent.popleft()
            self._sent_bytes -= len(old.blob)
            self._forgotten.setdefault(old.scope, []).append((old.sequence, old.n_contexts))
        return True

    def offer_again(self, scope: str) -> None:
        """Send the last batch of a scope once more: the store, if it has lost it, will say since when."""
        for batch in reversed(self._sent):
            if batch.scope == scope:
                self._withdraw([batch])
                return

    def keep(self, scopes: Collection[str]) -> None:
        """Forget what was sent of other scopes."""
        gone = [batch for batch in self._sent if batch.scope not in scopes]
        if gone:
            self._sent = deque(batch for batch in self._sent if batch.scope in scopes)
            self._sent_bytes -= sum(len(batch.blob) for batch in gone)
        for of_scope in (self._forgotten, self._last, self._resent_at):
            for scope in of_scope.keys() - scopes:
                del of_scope[scope]

    def _resend(self, scope: str, last: int) -> bool:
        now = self._clock()
        if now < self._resent_at.get(scope, -_RESEND_PAUSE_S) + _RESEND_PAUSE_S:
            return False
        self._resent_at[scope] = now
        offered = sum(one.scope == scope and last < one.sequence <= self.previous(scope) for one in self._waiting)
        self._last[scope] = last
        self.n_lost += sum(n for sequence, n in self._forgotten.pop(scope, ()) if sequence > last)
        lost = [batch for batch in self._sent if batch.scope == scope and batch.sequence > last]
        self.n_resent += len(lost) + offered
        self._withdraw(lost)
        return True

    def _withdraw(self, batches: Sequence[Batch]) -> None:
        """Let sent batches wait again, before the others."""
        sequences = {batch.sequence for batch in batches}
        self._sent = deque(batch for batch in self._sent if batch.sequence not in sequences)
        self._sent_bytes -= sum(len(batch.blob) for batch in batches)
        self._waiting.extendleft(reversed(batches))
        self.n_waiting += sum(batch.n_contexts for batch in batches)
