"""Workers, a compactor and a server that are killed at random, and a judge who counts what arrived.

Every delta has a key of its own and adds to one of a few common contexts: the keys say which deltas arrived and how often,
the common contexts whether batches were taken in whole.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.store.redis_servers import Server
from tts_orch.policies.drafting.context_delta import ContextDelta, ScopeDelta, coalesce
from tts_orch.store.base import LogRead, Snapshot, StoreStatistics
from tts_orch.store.compactor import Compactor
from tts_orch.store.folding import fold, read_all
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.replica import Replica
from tts_orch.store.wire import unpack_all
from tts_orch.store_address import StoreAddress

__all__ = ["Outcome", "count_after_kills"]

_SCOPE: Final = "weights/vocabulary/0/kills"
_BATCH: Final = 256
_N_COMMON: Final = 16
_WITHIN_S: Final = 200.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the deltas.

    Attributes:
        sent: deltas that were sent, whether or not an answer came before their writer was killed.
        acknowledged: deltas that the server said it had.
        stored: those that it has in the end.
        unsent: stored ones that nobody has sent.
        twice: those that it has more than once.
        lost: acknowledged ones that it has no more.
        lost_of_living: those of them whose writer was never killed.
        batches_are_whole: whether the common contexts say the same.
        tables_agree: whether every worker knows what the server has, each delta once.
    """

    sent: int
    acknowledged: int
    stored: int
    unsent: int
    twice: int
    lost: int
    lost_of_living: int
    batches_are_whole: bool
    tables_agree: bool


def count_after_kills(
    server: Server, folder: Path, *, n_workers: int, n_deltas: int, n_kills: int, pause_s: float, seed: int
) -> Outcome:
    """Let each worker send its deltas, kill workers, compactor and server `n_kills` times each, and count.

    Args:
        server: runs; it is started again with what it has on disk.
        folder: for notes of the workers.
        n_workers: how many there are.
        n_deltas: of each worker.
        n_kills: of each kind.
        pause_s: of a worker between batches.
        seed: of the kills.
    """
    with ExitStack() as opened:
        crew = _Crew(server.url, folder, n_workers, n_deltas, pause_s)
        opened.callback(crew.kill)
        crew.suffer(server, n_kills, random.Random(seed))
        _wait(lambda: all(map(crew.is_done, range(n_workers))))
        notes = [(worker, *note) for worker in range(n_workers) for note in _notes(crew.notes(worker))]
        living = {f"{worker}-{process.pid}" for worker, process in enumerate(crew.workers)}
        acknowledged = _keys(notes, lambda kind, writer: kind == "acknowledged")
        of_living = _keys(notes, lambda kind, writer: kind == "acknowledged" and writer in living)
        log = RedisLog(RedisClient(StoreAddress.parse(server.url), "judge", timeout_s=10), 0)
        _wait(lambda: bool(np.isin(of_living, _stored(log).key).all()))
        tables, stored = crew.tables(), _stored(log)
    own, sent = stored.key > _N_COMMON, _keys(notes, lambda kind, writer: True)
    return Outcome(
        sent=len(sent),
        acknowledged=len(acknowledged),
        stored=int(own.sum()),
        unsent=int((~np.isin(stored.key[own], sent)).sum()),
        twice=int((stored.count[own] > 1).sum()),
        lost=int((~np.isin(acknowledged, stored.key)).sum()),
        lost_of_living=int((~np.isin(of_living, stored.key)).sum()),
        batches_are_whole=_is_consistent(stored.key, stored.count),
        tables_agree=all(_is_consistent(*table) and bool(np.isin(stored.key, table[0]).all()) for table in tables),
    )


class _Crew:
    """The processes, each started again when it was killed."""

    def __init__(self, url: str, folder: Path, n_workers: int, n_deltas: int, pause_s: float) -> None:
        self._url, self._folder, self._n_deltas, self._pause_s = url, folder, n_deltas, pause_s
        self._processes = multiprocessing.get_context("forkserver")
        self._processes.set_forkserver_preload([__name__])
        self._end = folder / "end"
        self.workers = [self._start_worker(worker) for worker in range(n_workers)]
        self.compactor = self._start(_compact, url, self._end)

    def notes(self, worker: int) -> Path:
        return self._folder / f"{worker}.notes"

    def suffer(self, server: Server, n_kills: int, chance: random.Random) -> None:
        victims = ["worker", "compactor", "server"] * n_kills
        chance.shuffle(victims)
        mean_s = max(self._n_deltas / _BATCH * self._pause_s / len(victims), 0.2)
        for victim in victims:
            time.sleep(chance.uniform(0.2, 1.8) * mean_s)
            if victim == "server":
                server.kill()
                time.sleep(chance.uniform(0.0, 0.5))
                server.start()
            elif victim == "compactor":
                _kill(self.compactor)
                self.compactor = self._start(_compact, self._url, self._end)
            else:
                worker = chance.randrange(len(self.workers))
                _kill(self.workers[worker])
                self.workers[worker] = self._start_worker(worker)

    def is_done(self, worker: int) -> bool:
        return any(kind == "acknowledged" and last == self._n_deltas for kind, _, _, last in _notes(self.notes(worker)))

    def tables(self) -> list[tuple[NDArray[np.uint64], NDArray[np.int64]]]:
        """Let workers write down what they know and end; return keys and counts of each."""
        self._end.touch()
        for process in self.workers:
            process.join(_WITHIN_S)
        tables = [np.load(self._table(worker)) for worker in range(len(self.workers))]
        return [(table["key"], table["count"]) for table in tables]

    def kill(self) -> None:
        for process in (*self.workers, self.compactor):
            _kill(process)

    def _table(self, worker: int) -> Path:
        return self._folder / f"{worker}.npz"

    def _start_worker(self, worker: int) -> BaseProcess:
        files = self.notes(worker), self._table(worker), self._end
        return self._start(_work, self._url, worker, self._n_deltas, self._pause_s, *files)

    def _start(self, role: Callable[..., None], *arguments: object) -> BaseProcess:
        process = self._processes.Process(target=role, args=arguments, daemon=True)
        process.start()
        return process


def _kill(process: BaseProcess) -> None:
    process.kill()
    process.join()


class _Source:
    """Stands for a drafter: learns one batch of a worker's deltas after the other."""

    scopes = frozenset({_SCOPE})

    def __init__(self, worker: int, first: int, last: int) -> None:
        self._worker, self._next, self._last = worker, first, last
        self._known: list[ContextDelta] = []

    @property
    def n_undrained(self) -> int:
        return _BATCH if self._next < self._last else 0

    @property
    def known(self) -> ContextDelta:
        return coalesce(self._known)

    def drain(self) -> list[ScopeDelta]:
        first, self._next = self._next, min(self._next + _BATCH, self._last)
        if first == self._next:
            return []
        delta = _delta(self._worker, first, self._next)
        self._known.append(delta)
        return [ScopeDelta(_SCOPE, delta)]

    def merge(self, delta: ScopeDelta) -> None:
        self._known.append(delta.contexts)

    def reload(self, delta: ScopeDelta) -> None:
        self._known = [delta.contexts]


class _NotingLog:
    """A log that notes what is sent and what was acknowledged, where it outlives the process."""

    def __init__(self, log: RedisLog, notes: Path) -> None:
        self._log = log
        self._file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        index = _indices(unpack_all([blob])[0].key)
        self._note("sent", writer, index)
        last = self._log.append(scope, writer, sequence, blob, previous)
        if last >= sequence:
            self._note("acknowledged", writer, index)
        return last

    def read(self, scope: str, after_id: int) -> LogRead:
        return self._log.read(scope, after_id)

    def snapshot(self, scope: str) -> Snapshot:
        return self._log.snapshot(scope)

    def statistics(self) -> StoreStatistics:
        raise NotImplementedError

    def _note(self, kind: str, writer: str, index: NDArray[np.int64]) -> None:
        os.write(self._file, f"{kind} {writer} {index[0]} {index[-1] + 1}\n".encode())


def _work(url: str, worker: int, n_deltas: int, pause_s: float, notes: Path, table: Path, end: Path) -> None:
    """Send what earlier processes of this worker have not, until the end; then write down all that is known."""
    source = _Source(worker, max((last for _, _, _, last in _notes(notes)), default=0), n_deltas)
    log = _NotingLog(RedisLog(RedisClient(StoreAddress.parse(url), "worker"), 0), notes)
    replica = Replica(
        source, log, f"{worker}-{os.getpid()}", interval_s=0.05, batch_contexts=_BATCH, max_contexts=1 << 20
    )
    while not end.exists():
        replica.apply()
        time.sleep(pause_s)
    settled = time.monotonic() + 1.5
    while time.monotonic() < settled:
        replica.apply()
        time.sleep(0.002)
    replica.close()
    np.savez(table, key=source.known.key, count=source.known.count)


def _compact(url: str, end: Path) -> None:
    """Fold small pieces, often, until the end."""
    client = RedisClient(StoreAddress.parse(url), "compactor")
    compactor = Compactor(client, fold_bytes=1 << 14, quiet_s=0.5, interval_s=0.02)
    compactor.start()
    while not end.exists():
        time.sleep(0.05)
    compactor.close()


def _delta(worker: int, first: int, last: int) -> ContextDelta:
    """Return deltas `first` to `last` of a worker: each a context of its own and an observation of a common one."""
    index = np.arange(first, last, dtype=np.uint64)
    common, n_common = np.unique(index % np.uint64(_N_COMMON), return_counts=True)
    n = len(index) + len(common)
    count = np.concatenate([n_common, np.ones(len(index), np.int64)])
    return ContextDelta(
        key=np.concatenate([common + np.uint64(1), _own_keys(worker, first, last)]),
        order=np.ones(n, np.uint8),
        count=count,
        start=np.arange(n + 1),
        ids=np.ones(n, np.int32),
        sums=count,
    )


def _own_keys(worker: int, first: int, last: int) -> NDArray[np.uint64]:
    return np.arange(first, last, dtype=np.uint64) + np.uint64((worker + 1) << 32)


def _indices(key: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the numbers of deltas within their worker, the common contexts left out."""
    return (key[key > _N_COMMON] & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _notes(path: Path) -> Iterator[tuple[str, str, int, int]]:
    """Yield what a worker has noted: kind, writer, first and last delta."""
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, writer, first, last = line.split()
        yield kind, writer, int(first), int(last)


def _keys(notes: Sequence[tuple[int, str, str, int, int]], is_meant: Callable[[str, str], bool]) -> NDArray[np.uint64]:
    """Return the keys of the deltas in some of the notes, each once."""
    keys = [_own_keys(worker, first, last) for worker, kind, writer, first, last in notes if is_meant(kind, writer)]
    return np.unique(np.concatenate([np.zeros(0, np.uint64), *keys]))


def _stored(log: RedisLog) -> ContextDelta:
    snapshot, end = read_all(log, _SCOPE)
    return coalesce(list(fold(snapshot.blobs, unpack_all(end.blobs)[0])))


def _is_consistent(key: NDArray[np.uint64], count: NDArray[np.int64]) -> bool:
    """Return whether each delta is there once, and the common contexts have as many observations as there are deltas."""
    own = key > _N_COMMON
    expected = np.bincount(_indices(key) % _N_COMMON, minlength=_N_COMMON).tolist()
    common = dict(zip(key[~own].tolist(), count[~own].tolist(), strict=True))
    return bool((count[own] == 1).all()) and [common.get(i + 1, 0) for i in range(_N_COMMON)] == expected


def _wait(holds: Callable[[], bool]) -> None:
    """Wait until something holds; what is missing when the time is up is counted then."""
    deadline = time.monotonic() + _WITHIN_S
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.2)
