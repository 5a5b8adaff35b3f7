"""`Replica`: keeps one drafter's tables in step with everybody else's, beside the decode path and never in it.

A thread of its own talks to the store. The decode thread calls `apply` between steps, which moves deltas out of and into
the drafter's tables. A store that fails costs shared statistics, hence speed, and one warning; tokens never depend on it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ScopeDelta
from tts_orch.store.backlog import Backlog
from tts_orch.store.base import StatisticsLog
from tts_orch.store.counters import counted
from tts_orch.store.inbox import Inbox
from tts_orch.store.outbox import Batch, Outbox
from tts_orch.store.reader import News, ScopeReader

__all__ = ["Replica", "ReplicaStatistics", "SharingDrafter"]

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 5.0
_PORTION = 256
"""Contexts that are merged at once: a few tenths of a millisecond."""
_SHARE = 0.1
"""Of the time of decoding, at most so much is spent on merging, while there is more than one portion to merge."""
_LONGEST_MERGE_S = 0.02


class SharingDrafter(Protocol):
    """A drafter whose statistics can be shared, such as `Stand` with `records_deltas`."""

    @property
    def scopes(self) -> frozenset[str]:
        """Scopes in use."""
        ...

    @property
    def n_undrained(self) -> int:
        """Observations that wait for `drain`."""
        ...

    def drain(self) -> list[ScopeDelta]:
        """Return what was learned since the last call."""
        ...

    def merge(self, delta: ScopeDelta) -> None:
        """Add what others learned."""
        ...

    def reload(self, delta: ScopeDelta) -> None:
        """Replace what is known of a scope."""
        ...


@dataclass(frozen=True, slots=True)
class ReplicaStatistics:
    """Counters since the start: batches and contexts sent, contexts merged, and what went wrong.

    Attributes:
        waiting_contexts: contexts that wait to be sent just now; what is not sent by the end is lost.
        reloads: gaps in a log that were mended from its snapshot.
        rejected: batches that could not be read or belong to another target.
        resent_batches: batches that the store has lost and got again.
        lost_contexts: contexts that the store has lost and that nobody could send again.
        dropped_contexts: contexts that were never sent, because the store was away for too long.
        failures: exchanges with the store that failed.
    """

    sent_batches: int = 0
    sent_contexts: int = 0
    waiting_contexts: int = 0
    merged_contexts: int = 0
    reloads: int = 0
    rejected: int = 0
    resent_batches: int = 0
    lost_contexts: int = 0
    dropped_contexts: int = 0
    failures: int = 0


class Replica:
    """Shares the statistics of one drafter; starts its thread at once.

    Args:
        drafter: whose statistics; touched only by `apply` and `close`.
        log: the store.
        writer: a name that no other replica has or had.
        interval_s: seconds between exchanges with the store.
        batch_contexts: observations that start an exchange earlier.
        max_contexts: contexts that may wait in either direction.
        max_sent_bytes: of what was sent, so much is kept in case the store loses it.
        clock: seconds, monotone.
    """

    def __init__(
        self,
        drafter: SharingDrafter,
        log: StatisticsLog,
        writer: str,
        *,
        interval_s: float = 0.2,
        batch_contexts: int = 4096,
        max_contexts: int = 1 << 16,
        max_sent_bytes: int = 64 << 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drafter = drafter
        self._log = log
        self._writer = writer
        self._interval_s = interval_s
        self._batch_contexts = batch_contexts
        self._max_contexts = max_contexts
        self._clock = clock
        self._drained_at = self._merged_at = clock()
        # Shared by the two threads, under the lock:
        self._lock = threading.Lock()
        self._backlog = Backlog(max_contexts)
        self._inbox = Inbox()
        self._is_inbox_full = False
        self._scopes: frozenset[str] = frozenset()
        self._statistics = ReplicaStatistics()
        # The thread's own:
        self._readers: dict[str, ScopeReader] = {}
        self._outbox = Outbox(max_sent_bytes, clock)
        self._failures_in_a_row = 0
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statistics-replica", daemon=True)
        self._thread.start()

    def apply(self) -> None:
        """Merge some of what has arrived and hand over what was learned; call between steps from the decode thread.

        Never raises for what the store did. Takes a tenth of the time since the last call, or one portion of a delta.
        """
        with self._lock:
            self._merge_some()
            # A reload counts on it that nothing is drained between its arrival and its merge.
            is_due = self._is_drain_due() and self._inbox.n_reloads == 0
            if is_due:
                self._drain()
            has_room_again = self._is_inbox_full and self._inbox.n_contexts <= self._max_contexts // 2
            self._is_inbox_full &= not has_room_again
        if is_due or has_room_again:
            self._wake.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is left, if that can be done in time, and end the thread; call from the decode thread."""
        with self._lock:
            self._drain()
        self._closing.set()
        self._wake.set()
        self._thread.join(timeout_s)

    def statistics(self) -> ReplicaStatistics:
        """Return the counters; safe from any thread."""
        with self._lock:
            return replace(
                self._statistics,
                waiting_contexts=self._backlog.n_contexts + self._outbox.n_waiting,
                resent_batches=self._outbox.n_resent,
                lost_contexts=self._outbox.n_lost,
                dropped_contexts=self._backlog.n_dropped,
            )

    def _merge_some(self) -> None:
        began = self._clock()
        end = began + min(_SHARE * (began - self._merged_at), _LONGEST_MERGE_S)
        while (portion := self._inbox.take(_PORTION)) is not None:
            self._merge(*portion)
            if self._clock() >= end:
                break
        self._merged_at = self._clock()

    def _merge(self, delta: ScopeDelta, is_reload: bool) -> None:
        try:
            (self._drafter.reload if is_reload else self._drafter.merge)(delta)
        except ValueError as error:
            logger.warning("shared statistics refused: %s", error)
            self._count(rejected=1)
        else:
            self._count(merged_contexts=delta.contexts.n_contexts, reloads=int(is_reload))

    def _is_drain_due(self) -> bool:
        is_full = self._drafter.n_undrained >= self._batch_contexts
        return is_full or self._clock() - self._drained_at >= self._interval_s

    def _drain(self) -> None:
        self._backlog.add(self._drafter.drain())
        self._scopes = self._drafter.scopes
        self._drained_at = self._clock()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._pause()
            is_last = self._closing.is_set()  # asked before the exchange, so that what `close` left is sent
            self._exchange()

    def _pause(self) -> None:
        """Wait until there is something to do; after failures for longer, whatever there is to do."""
        something = self._closing if self._failures_in_a_row else self._wake
        something.wait(min(self._interval_s * 2**self._failures_in_a_row, _LONGEST_PAUSE_S))
        self._wake.clear()

    def _exchange(self) -> None:
        try:
            self._send()
            self._receive()
        except Exception as error:
            if self._failures_in_a_row == 0:
                is_fault_of_ours = not isinstance(error, StoreError)
                logger.warning("%s; decoding goes on with local statistics", error, exc_info=is_fault_of_ours)
            self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
            with self._lock:
                self._count(failures=1)
        else:
            self._failures_in_a_row = 0

    def _send(self) -> None:
        while (batch := self._outbox.first or self._next_batch()) is not None:
            if batch.scope in self._scopes_in_use():
                self._follow(batch.scope, batch.sequence)
            previous = self._outbox.previous(batch.scope)
            last = self._log.append(batch.scope, self._writer, batch.sequence, batch.blob, previous)
            if not self._outbox.acknowledge(last):
                return
            if last >= batch.sequence:
                with self._lock:
                    self._count(sent_batches=1, sent_contexts=batch.n_contexts)

    def _next_batch(self) -> Batch | None:
        with self._lock:
            taken = self._backlog.take()
        if taken is not None:
            self._outbox.put(*taken)
        return self._outbox.first

    def _receive(self) -> None:
        scopes = self._scopes_in_use()
        self._readers = {scope: reader for scope, reader in self._readers.items() if scope in scopes}
        self._outbox.keep(scopes)
        for scope in scopes:
            if self._has_enough():
                return  # the decoder is busy or idle; the log keeps the rest
            reader = self._follow(scope, self._outbox.next_sequence)
            self._deliver(scope, reader.poll(self._outbox.next_sequence))

    def _scopes_in_use(self) -> frozenset[str]:
        with self._lock:
            return self._scopes

    def _has_enough(self) -> bool:
        """Return whether the table is so far behind that reading on can wait."""
        with self._lock:
            self._is_inbox_full = self._inbox.n_contexts > self._max_contexts
            return self._is_inbox_full

    def _follow(self, scope: str, next_sequence: int) -> ScopeReader:
        """Open a scope's log, before anything of it is sent, so that its snapshot has no batch that the table has."""
        reader = self._readers.get(scope)
        if reader is None:
            reader = ScopeReader(self._log, scope, self._writer, next_sequence)
            self._deliver(scope, reader.poll(next_sequence))
            self._readers[scope] = reader
        return reader

    def _deliver(self, scope: str, news: News) -> None:
        if news.has_lost:
            self._outbox.offer_again(scope)
        with self._lock:
            self._count(rejected=news.n_rejected)
            self._inbox.add(ScopeDelta(scope, news.contexts), is_reload=news.is_reload)
            if news.is_reload:  # own batches come back from the log, what was never sent would not
                for contexts in self._backlog.of(scope):
                    self._inbox.add(ScopeDelta(scope, contexts))
        if news.contexts.n_contexts >= self._batch_contexts:
            self._wake.set()  # there may be more

    def _count(self, **more: int) -> None:
        self._statistics = counted(self._statistics, **more)
