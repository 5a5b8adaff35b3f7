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

from tts_orch.policies.drafting.context_delta import ScopeDelta, coalesce
from tts_orch.store.backlog import Backlog
from tts_orch.store.base import StatisticsLog
from tts_orch.store.reader import News, ScopeReader
from tts_orch.store.wire import pack

__all__ = ["Replica", "ReplicaStatistics", "SharingDrafter"]

logger = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 5.0


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
        reloads: gaps in a log that were mended from its snapshot.
        rejected: batches that could not be read or belong to another target.
        dropped_contexts: contexts that were never sent, because the store was away for too long.
        failures: exchanges with the store that failed.
    """

    sent_batches: int = 0
    sent_contexts: int = 0
    merged_contexts: int = 0
    reloads: int = 0
    rejected: int = 0
    dropped_contexts: int = 0
    failures: int = 0


@dataclass(frozen=True, slots=True)
class _Batch:
    scope: str
    sequence: int
    n_contexts: int
    blob: bytes


class Replica:
    """Shares the statistics of one drafter; starts its thread at once.

    Args:
        drafter: whose statistics; touched only by `apply` and `close`.
        log: the store.
        writer: a name that no other replica has or had.
        interval_s: seconds between exchanges with the store.
        batch_contexts: observations that start an exchange earlier.
        max_contexts: contexts that may wait in either direction.
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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._drafter = drafter
        self._log = log
        self._writer = writer
        self._interval_s = interval_s
        self._batch_contexts = batch_contexts
        self._max_contexts = max_contexts
        self._clock = clock
        self._drained_at = clock()
        # Shared by the two threads, under the lock:
        self._lock = threading.Lock()
        self._backlog = Backlog(max_contexts)
        self._incoming: list[tuple[ScopeDelta, bool]] = []  # with whether it replaces the table
        self._scopes: frozenset[str] = frozenset()
        self._statistics = ReplicaStatistics()
        # The thread's own:
        self._readers: dict[str, ScopeReader] = {}
        self._next_sequence = 0
        self._in_flight: _Batch | None = None  # sent, perhaps received, not acknowledged
        self._failures_in_a_row = 0
        self._wake = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="statistics-replica", daemon=True)
        self._thread.start()

    def apply(self) -> None:
        """Merge what has arrived and hand over what was learned; call between steps from the decode thread.

        Never raises for what the store did.
        """
        is_full = self._drafter.n_undrained >= self._batch_contexts
        with self._lock:
            # What arrived is merged before anything is drained: a reload counts on it.
            for delta, is_reload in self._incoming:
                self._merge(delta, is_reload)
            self._incoming.clear()
            if is_full or self._clock() - self._drained_at >= self._interval_s:
                self._drain()
        if is_full:
            self._wake.set()

    def close(self, timeout_s: float = 5.0) -> None:
        """Send what is left, if that can be done in time, and end the thread; call from the decode thread."""
        with self._lock:
            self._drain()
        self._is_closing = True
        self._wake.set()
        self._thread.join(timeout_s)

    def statistics(self) -> ReplicaStatistics:
        """Return the counters; safe from any thread."""
        with self._lock:
            return replace(self._statistics, dropped_contexts=self._backlog.n_dropped)

    def _merge(self, delta: ScopeDelta, is_reload: bool) -> None:
        try:
            (self._drafter.reload if is_reload else self._drafter.merge)(delta)
        except ValueError as error:
            logger.warning("shared statistics refused: %s", error)
            self._count(rejected=1)
        else:
            self._count(merged_contexts=delta.contexts.n_contexts, reloads=int(is_reload))

    def _drain(self) -> None:
        self._backlog.add(self._drafter.drain())
        self._scopes = self._drafter.scopes
        self._drained_at = self._clock()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._wake.wait(min(self._interval_s * 2**self._failures_in_a_row, _LONGEST_PAUSE_S))
            self._wake.clear()
            is_last = self._is_closing  # asked before the exchange, so that what `close` left is sent
            self._exchange()

    def _exchange(self) -> None:
        try:
            self._send()
            self._receive()
        except Exception as error:
            if self._failures_in_a_row == 0:
                logger.warning("statistics store: %s; decoding goes on with local statistics", error)
            self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
            with self._lock:
                self._count(failures=1)
        else:
            self._failures_in_a_row = 0

    def _send(self) -> None:
        while (batch := self._in_flight or self._next_batch()) is not None:
            self._in_flight = batch
            if batch.scope in self._scopes_in_use():
                self._follow(batch.scope, batch.sequence)
            self._log.append(batch.scope, self._writer, batch.sequence, batch.blob)
            self._in_flight = None
            with self._lock:
                self._count(sent_batches=1, sent_contexts=batch.n_contexts)

    def _next_batch(self) -> _Batch | None:
        with self._lock:
            taken = self._backlog.take()
        if taken is None:
            return None
        scope, deltas = taken
        contexts = coalesce(deltas)
        self._next_sequence += 1
        return _Batch(scope, self._next_sequence - 1, contexts.n_contexts, pack(contexts))

    def _receive(self) -> None:
        scopes = self._scopes_in_use()
        self._readers = {scope: reader for scope, reader in self._readers.items() if scope in scopes}
        for scope in scopes:
            if self._n_incoming() > self._max_contexts:
                return  # the decoder is busy or idle; the log keeps the rest
            reader = self._follow(scope, self._next_sequence)
            self._deliver(scope, reader.poll(self._next_sequence))

    def _scopes_in_use(self) -> frozenset[str]:
        with self._lock:
            return self._scopes

    def _n_incoming(self) -> int:
        with self._lock:
            return sum(delta.contexts.n_contexts for delta, _ in self._incoming)

    def _follow(self, scope: str, next_sequence: int) -> ScopeReader:
        """Open a scope's log, before anything of it is sent, so that its snapshot has no batch that the table has."""
        reader = self._readers.get(scope)
        if reader is None:
            reader = ScopeReader(self._log, scope, self._writer, next_sequence)
            self._deliver(scope, reader.poll(next_sequence))
            self._readers[scope] = reader
        return reader

    def _deliver(self, scope: str, news: News) -> None:
        with self._lock:
            self._count(rejected=news.n_rejected)
            if news.contexts.n_contexts:
                self._incoming.append((ScopeDelta(scope, news.contexts), news.is_reload))
            if news.is_reload:  # own batches come back from the log, what was never sent would not
                self._incoming.extend((ScopeDelta(scope, contexts), False) for contexts in self._backlog.of(scope))

    def _count(self, **more: int) -> None:
        values = {name: getattr(self._statistics, name) + n for name, n in more.items()}
        self._statistics = replace(self._statistics, **values)
