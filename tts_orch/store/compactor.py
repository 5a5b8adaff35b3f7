"""`Compactor`: keeps the logs of all scopes short by folding them into snapshots, beside everybody else's work.

Every run has one. Those at the same server take turns at a scope: whoever has its lease folds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tts_orch.errors import StoreError
from tts_orch.store.counters import counted
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_folding import fold_log
from tts_orch.store.redis_keys import ALL_LOGS, ScopeKeys
from tts_orch.store.redis_snapshots import SnapshotHead, keep_with_log, read_head

__all__ = ["Compactor", "CompactorStatistics"]

logger = logging.getLogger(__name__)

_FAILURES_A_SWEEP: Final = 3
_IDLE_SHARE: Final = 20  # a sweep is followed by a pause of so many times its length


@dataclass(frozen=True, slots=True)
class CompactorStatistics:
    """Counters since the start.

    Attributes:
        folds: snapshots made.
        folded_entries: entries of logs in them.
        rejected: entries of logs that could not be read.
        failures: sweeps that the store failed in.
    """

    folds: int = 0
    folded_entries: int = 0
    rejected: int = 0
    failures: int = 0


class Compactor:
    """Folds logs that have grown, and those that have come to rest; `start` begins a thread, `sweep` looks once.

    Args:
        client: of the server.
        fold_bytes: a log is folded when what is new in it is more than this and more than half of its snapshot; waiting for
            the latter keeps the work of folding proportional to what was appended.
        quiet_s: a log without new entries for so long is folded whatever its size.
        interval_s: seconds between sweeps, at least.
        clock: seconds, monotone.

    Attributes:
        statistics: counters.
    """

    def __init__(
        self,
        client: RedisClient,
        *,
        fold_bytes: int = 8 << 20,
        quiet_s: float = 60.0,
        interval_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._fold_bytes = fold_bytes
        self._quiet_s = quiet_s
        self._interval_s = interval_s
        self._clock = clock
        self._lengths: dict[str, tuple[int, float]] = {}  # of logs by scope, and since when
        self._has_warned = False
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="statistics-compactor", daemon=True)
        self.statistics = CompactorStatistics()

    def start(self, *, has_warned: bool = False) -> None:
        """Begin to sweep.

        Args:
            has_warned: whether the user knows already that the server fails just now.
        """
        self._has_warned = has_warned
        self._thread.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """End the thread; a fold that takes longer is left to die, which does no harm."""
        self._is_closing.set()
        self._thread.join(timeout_s)

    def sweep(self) -> None:
        """Look at all logs once and fold those that are due.

        Raises:
            StoreError: the store failed; what could be folded nevertheless was.
        """
        lengths, self._lengths = self._lengths, {}
        failures: list[StoreError] = []
        for keys in [ScopeKeys.of(key) for key in set(self._client.keys(ALL_LOGS, "stream"))]:
            if self._is_closing.is_set() or len(failures) == _FAILURES_A_SWEEP:
                break
            try:
                self._look_at(keys, lengths.get(keys.scope))
            except StoreError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _run(self) -> None:
        pause_s = self._interval_s
        while not self._is_closing.wait(pause_s):
            began = self._clock()
            try:
                self.sweep()
                self._has_warned = False
            except StoreError as error:
                if not self._has_warned:
                    logger.warning("%s; decoding goes on, and logs are folded when that is mended", error)
                self._has_warned = True
                self._count(failures=1)
            pause_s = max(self._interval_s, _IDLE_SHARE * (self._clock() - began))

    def _look_at(self, keys: ScopeKeys, before: tuple[int, float] | None) -> None:
        """Fold a log if it is due.

        Args:
            keys: of its scope.
            before: its length at the last sweep, and since when it has had it.
        """
        n_entries, now = int(self._client.execute("XLEN", keys.log)), self._clock()
        has_changed = before is None or before[0] != n_entries
        since = now if before is None or has_changed else before[1]
        self._lengths[keys.scope] = n_entries, since
        is_quiet = now - since >= self._quiet_s and n_entries > 1
        if has_changed:
            keep_with_log(self._client, keys)
        if is_quiet or (has_changed and self._has_grown(keys, n_entries, read_head(self._client, keys))):
            result = fold_log(self._client, keys, keeps_generation=not is_quiet)
            self._count(folds=result.is_done, folded_entries=result.n_entries, rejected=result.n_rejected)

    def _has_grown(self, keys: ScopeKeys, n_entries: int, head: SnapshotHead | None) -> bool:
        n_new = n_entries if head is None else n_entries - head.n_kept
        size_bytes = int(self._client.execute("MEMORY USAGE", keys.log) or 0)
        least_bytes = max(self._fold_bytes, head.size_bytes // 2 if head is not None else 0)
        return n_new * size_bytes > n_entries * least_bytes

    def _count(self, **more: int) -> None:
        self.statistics = counted(self.statistics, **more)
