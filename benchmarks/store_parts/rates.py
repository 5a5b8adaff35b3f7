"""How fast deltas are packed, sent, read and merged."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from store_parts.payloads import BATCH, N_IDS, VOCABULARY_SIZE, delta_of, recurring_deltas
from store_parts.servers import RedisServer, running
from tts_orch.bench.markdown import Cell, table
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.context_delta import KEPT, ContextDelta, ScopeDelta, coalesce
from tts_orch.policies.drafting.draft_tree import TrajectoryStart
from tts_orch.policies.drafting.ngram_kernels import find_entry
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_file import default_tree
from tts_orch.records import SamplingParams
from tts_orch.store.redis_log import RedisLogOpener
from tts_orch.store.replica import Replica
from tts_orch.store.wire import pack, unpack

__all__ = ["append", "merge", "sharing_stand", "wire"]

_DISTINCT = 100_000
"""Contexts that a problem's workers meet again and again."""
_KEPT_ENTRIES = 256
_LAST_KEY = np.uint64(2**64 - 1)
"""A key behind all others: when a table has it, it has everything before it."""


def wire(arguments: argparse.Namespace) -> str:
    """Each step that a delta passes through, in a single thread, by processor time."""
    deltas = recurring_deltas(32, _DISTINCT)
    table_of_all = NgramTable(vocabulary_size=VOCABULARY_SIZE)
    table_of_all.open("scope")
    blobs = [pack(delta) for delta in deltas]
    sums = coalesce(deltas)
    steps: list[tuple[str, Callable[[], object], int]] = [
        ("coalesce, 8 batches at a time", lambda: [coalesce(deltas[i : i + 8]) for i in range(0, 32, 8)], 32 * BATCH),
        ("pack", lambda: [pack(delta) for delta in deltas], 32 * BATCH),
        ("unpack and check", lambda: [unpack(blob) for blob in blobs], 32 * BATCH),
        ("cut to 32 ids", lambda: sums.cut(KEPT), sums.n_contexts),
        ("merge into the table", lambda: [table_of_all.merge("scope", delta) for delta in deltas], 32 * BATCH),
    ]
    rows: list[list[Cell]] = []
    for name, run, n in steps:
        seconds = [_thread_seconds(run) for _ in range(4)][1:]  # the first one compiles
        rows.append([name, n / min(seconds) / 1e6, min(seconds) / n * 1e9])
    size = np.mean([len(blob) for blob in blobs]) / BATCH
    return table(["step", "million deltas/s", "ns a delta"], rows) + f"\n{size:.1f} bytes a delta on the wire.\n"


def _thread_seconds(run: Callable[[], object]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started


def append(arguments: argparse.Namespace) -> str:
    """Deltas a second into one Redis: writers in processes of their own, the log trimmed as a compactor would."""
    rows = []
    with running(arguments.server) as server:
        for name, is_packed in (("packed before", True), ("coalesced and packed on the way", False)):
            rows.append([name, *_append_rates(server, is_packed, arguments)])
    header = ["batches", "million deltas/s", "million a second of the server's processor"]
    return f"{arguments.writers} writers, batches of {BATCH} contexts of {N_IDS} ids.\n\n" + table(header, rows)


def _append_rates(server: RedisServer, is_packed: bool, arguments: argparse.Namespace) -> tuple[float, float]:
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(arguments.writers + 1), context.Queue()
    writers = [
        context.Process(target=_write, args=(server.opener(), name, is_packed, arguments.seconds, start, results))
        for name in map(str, range(arguments.writers))
    ]
    for writer in writers:
        writer.start()
    start.wait(120)
    client, cpu_s = server.connection(), server.cpu_s
    while any(writer.is_alive() for writer in writers):
        for key in client.scan_iter("tts:*:log"):
            client.xtrim(key, maxlen=_KEPT_ENTRIES, approximate=False)
        time.sleep(0.02)
    n = sum(results.get() for _ in writers)
    for writer in writers:
        writer.join()
    return n / arguments.seconds / 1e6, n / (server.cpu_s - cpu_s) / 1e6


def _write(
    opener: RedisLogOpener,
    name: str,
    is_packed: bool,
    seconds: float,
    start: multiprocessing.synchronize.Barrier,
    results: multiprocessing.Queue[int],
) -> None:
    """Append for so long; report the number of deltas."""
    log, deltas = opener(), recurring_deltas(8, _DISTINCT, seed=int(name))
    halves = [[delta.part(0, BATCH // 2), delta.part(BATCH // 2, BATCH)] for delta in deltas]
    blobs, sequence = [pack(coalesce(parts)) for parts in halves], 0
    log.append("warm-up", name, 0, blobs[0])
    start.wait(120)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        blob = blobs[sequence % 8] if is_packed else pack(coalesce(halves[sequence % 8]))
        log.append("scope", f"{name}-{is_packed}", sequence, blob, sequence - 1)
        sequence += 1
    results.put(sequence * BATCH)


def merge(arguments: argparse.Namespace) -> str:
    """Deltas a second that one replica reads from Redis and merges, with nothing else to do."""
    rows: list[list[Cell]] = []
    with running(arguments.server) as server:
        for repeat in range(arguments.repeats):
            scope = f"scope {repeat}"
            n = _fill(server, scope, arguments.deltas)
            with following(server, scope) as (stand, replica):
                wall, cpu = time.perf_counter(), time.process_time()
                while not knows_last(stand, scope):
                    n_merged = replica.statistics().merged_contexts
                    replica.apply()
                    if replica.statistics().merged_contexts == n_merged:
                        time.sleep(0.0005)
                wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            rows.append([repeat + 1, n, n / wall / 1e6, n / cpu / 1e6])
            server.connection().flushall()
    return table(["run", "deltas", "million/s", "million a second of its processors"], rows)


def _fill(server: RedisServer, scope: str, n_deltas: int) -> int:
    """Write a log whose last context is the last key; return how many deltas it has."""
    log, deltas = server.log(), recurring_deltas(32, _DISTINCT)
    blobs = [pack(delta) for delta in deltas]
    n_batches = -(-n_deltas // BATCH)
    for sequence in range(n_batches):
        log.append(scope, "writer", sequence, blobs[sequence % 32], sequence - 1)
    log.append(scope, "writer", n_batches, pack(last_delta()), n_batches - 1)
    return n_batches * BATCH + 1


def last_delta() -> ContextDelta:
    """Return one observation of the last key."""
    return delta_of(np.array([_LAST_KEY]), np.random.default_rng(0))


def knows_last(stand: Stand, scope: str) -> bool:
    """Return whether the last key has arrived."""
    return find_entry(stand.table.columns, _LAST_KEY ^ stand.table.open(scope)) >= 0


def sharing_stand(scopes: Sequence[str], entries: int = 1 << 20) -> Stand:
    """Return a drafter that shares what it learns of scopes, its kernels compiled."""
    config = DraftingConfig(table_entries=entries)
    stand = Stand(config, default_tree(), vocabulary_size=VOCABULARY_SIZE, records_deltas=True)
    for scope in ("warm-up", *scopes):
        stand.start(TrajectoryStart(scope, np.zeros(1, np.int32), scope, 0, SamplingParams()))
    stand.merge(ScopeDelta("warm-up", unpack(pack(coalesce([last_delta()])))))
    stand.close_scope("warm-up")
    return stand


@contextmanager
def following(server: RedisServer, scope: str, entries: int = 1 << 20) -> Iterator[tuple[Stand, Replica]]:
    """Yield a drafter and its replica, which knows the scope from its first `apply` on."""
    stand = sharing_stand([scope], entries)
    replica = Replica(stand, server.log(), "reader")
    try:
        yield stand, replica
    finally:
        replica.close()
