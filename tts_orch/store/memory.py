"""`MemoryStore`, the default store: logs and snapshots of all scopes in one process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

from tts_orch.policies.drafting.context_delta import KEPT, coalesce
from tts_orch.store.base import LogEntry, LogRead, Snapshot, StoreStatistics
from tts_orch.store.wire import pack, unpack

__all__ = ["MemoryStore"]

_READ_BYTES = 16 << 20
_SCOPE_BYTES = 2048  # what a scope costs besides its blobs, so that many empty ones count


class _ScopeLog:
    """The log of one scope, with its beginning folded into a snapshot."""

    def __init__(self, log_id: int) -> None:
        self.entries: deque[LogEntry] = deque()
        self.sequences: dict[str, int] = {}
        self.log_bytes = 0
        self.snapshot = Snapshot(log_id, {}, ())

    @property
    def size_bytes(self) -> int:
        return _SCOPE_BYTES + self.log_bytes + self.snapshot_bytes

    @property
    def snapshot_bytes(self) -> int:
        return sum(map(len, self.snapshot.blobs))

    def append(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        self.sequences[entry.writer] = entry.sequence
        self.log_bytes += len(entry.blob)

    def fold(self, keep_bytes: int) -> None:
        """Move the oldest entries into the snapshot until the log is small enough."""
        deltas = [unpack(blob) for blob in self.snapshot.blobs]
        sequences, log_id = dict(self.snapshot.sequences), self.snapshot.log_id
        while self.log_bytes > keep_bytes:
            entry = self.entries.popleft()
            self.log_bytes -= len(entry.blob)
            deltas.append(unpack(entry.blob))
            sequences[entry.writer], log_id = entry.sequence, entry.id
        self.snapshot = Snapshot(log_id, sequences, (pack(coalesce(deltas).cut(KEPT)),))


class MemoryStore:
    """A `StatisticsLog` in memory, for any number of threads.

    Args:
        max_bytes: logs and snapshots together; beyond it the scopes that were not used for longest are dropped, the one
            in use last of all.
        fold_bytes: a log that grows beyond this and beyond its snapshot is folded to half of it; waiting for the snapshot's
            size keeps the work of folding proportional to what was appended.
        first_id: ids are larger. They count from the time by default, so that to readers of an earlier store this one
            shows a gap.
    """

    def __init__(self, max_bytes: int = 1 << 30, fold_bytes: int = 8 << 20, first_id: int | None = None) -> None:
        self._max_bytes = max_bytes
        self._fold_bytes = fold_bytes
        self._lock = threading.Lock()
        self._scopes: OrderedDict[str, _ScopeLog] = OrderedDict()  # least recently used first
        self._size_bytes = 0
        self._last_id = time.time_ns() if first_id is None else first_id  # of all scopes: one that comes back has a gap
        self._appended = self._duplicates = self._folds = self._dropped = 0

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        """Add a batch; see `StatisticsLog`.

        Raises:
            StoreError: bytes that are no packed delta.
        """
        unpack(blob)
        with self._lock:
            log = self._find_or_make(scope)
            last = log.sequences.get(writer, -1)
            if last < previous or last >= sequence:
                self._duplicates += last >= sequence
                return last
            before = log.size_bytes
            self._last_id += 1
            self._appended += 1
            log.append(LogEntry(self._last_id, writer, sequence, blob))
            if log.log_bytes > max(self._fold_bytes, log.snapshot_bytes):
                log.fold(self._fold_bytes // 2)
                self._folds += 1
            self._size_bytes += log.size_bytes - before
            self._drop_scopes()
            return sequence

    def read(self, scope: str, after_id: int) -> LogRead:
        """Return entries after an id, some 16 MiB of them at most."""
        with self._lock:
            log = self._find(scope)
            if after_id < log.snapshot.log_id:
                return LogRead((), after_id, has_gap=True)
            entries, n_bytes = [], 0
            for entry in log.entries:
                if entry.id > after_id and n_bytes < _READ_BYTES:
                    entries.append(entry)
                    n_bytes += len(entry.blob)
            return LogRead(entries, entries[-1].id if entries else after_id)

    def snapshot(self, scope: str) -> Snapshot:
        """Return the folded beginning of a scope's log, an empty one if nothing was folded."""
        with self._lock:
            return self._find(scope).snapshot

    def statistics(self) -> StoreStatistics:
        """Return the counters."""
        with self._lock:
            return StoreStatistics(
                scopes=len(self._scopes),
                entries=sum(len(log.entries) for log in self._scopes.values()),
                size_bytes=self._size_bytes,
                appended=self._appended,
                duplicates=self._duplicates,
                folds=self._folds,
                dropped_scopes=self._dropped,
            )

    def _find(self, scope: str) -> _ScopeLog:
        """Return a scope's log, an empty one that is not kept where there is none."""
        if scope not in self._scopes:
            return _ScopeLog(self._last_id)
        self._scopes.move_to_end(scope)
        return self._scopes[scope]

    def _find_or_make(self, scope: str) -> _ScopeLog:
        log = self._find(scope)
        if scope not in self._scopes:
            self._scopes[scope] = log
            self._size_bytes += log.size_bytes
        return log

    def _drop_scopes(self) -> None:
        while self._size_bytes > self._max_bytes:
            _, log = self._scopes.popitem(last=False)
            self._size_bytes -= log.size_bytes
            self._dropped += 1
