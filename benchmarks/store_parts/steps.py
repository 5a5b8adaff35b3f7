"""What a decode step notices of the shared statistics: nothing in its tokens, and nothing in its time."""

from __future__ import annotations

import argparse
import hashlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from store_parts.decoding import Decoded, Worker, Workshop
from store_parts.payloads import BATCH, recurring_deltas
from store_parts.servers import RedisServer, running
from tts_orch.bench.intervals import ratio_interval
from tts_orch.bench.markdown import Cell, table
from tts_orch.store.base import StatisticsLog
from tts_orch.store.memory import MemoryStore
from tts_orch.store.redis_log import RedisLogOpener
from tts_orch.store.replica import ReplicaStatistics
from tts_orch.store.wire import pack

__all__ = ["step", "tokens"]

_SCOPE = "run"
_DISTINCT = 100_000


def step(arguments: argparse.Namespace) -> str:
    """Decode step time with Redis on, with Redis stopped, and with memory alone, in interleaved pairs."""
    workshop = Workshop(arguments)
    return "\n".join(_steps(workshop, arguments, feed) for feed in arguments.feed)


def _steps(workshop: Workshop, arguments: argparse.Namespace, feed: float) -> str:
    """Compare the stores while others feed so many deltas a second into Redis."""
    batch = arguments.samples
    with running(arguments.server) as server, running(arguments.server) as stopped:
        workers = {
            "memory": workshop.worker(batch, MemoryStore()),
            "memory again": workshop.worker(batch, MemoryStore()),
            "Redis": workshop.worker(batch, server.log()),
            "Redis, stopped": workshop.worker(batch, stopped.log()),
        }
        with feeding(server, feed):
            runs, freezes = _take_turns(workshop, workers, stopped, arguments.pairs)
        shared = workers["Redis"].replica.statistics() if workers["Redis"].replica else ReplicaStatistics()
        for worker in workers.values():
            worker.close()
    header = ["store", "tokens/s", "step, ms: median", "p99", "longest", "median against memory [95 %]"]
    seconds = sum(sum(decoded.step_s) for decoded in runs["Redis"])
    notes = (
        f"{arguments.pairs} pairs of {batch} trajectories of {arguments.tokens} tokens; all tokens were equal. Others fed "
        f"{feed:.0f} deltas a second into Redis, of which {shared.merged_contexts} contexts were merged; this worker sent "
        f"{shared.sent_contexts / seconds:.0f} a second of its own steps. The stopped server answered nothing for {min(freezes):.1f} to {max(freezes):.1f} s at a time.\n"
    )
    return table(header, [_row(name, runs) for name in runs]) + "\n" + notes


def _take_turns(
    workshop: Workshop, workers: dict[str, Worker], stopped: RedisServer, n_pairs: int
) -> tuple[dict[str, list[Decoded]], list[float]]:
    """Let every worker decode each problem before the next one, in an order that turns."""
    runs: dict[str, list[Decoded]] = {name: [] for name in workers}
    freezes = []
    for pair in range(-1, n_pairs):  # the first one compiles, allocates, touches memory
        prompt = workshop.prompts[pair % len(workshop.prompts)]
        names = [*workers][pair % len(workers) :] + [*workers][: pair % len(workers)]
        for name in names:
            with frozen(stopped, freezes) if name == "Redis, stopped" and pair >= 0 else nullcontext():
                decoded = workers[name].decode(workshop.requests(prompt, _SCOPE))
            if pair >= 0:
                runs[name].append(decoded)
        last = [runs[name][-1].outputs for name in names if runs[name]]
        if any(outputs != last[0] for outputs in last):
            raise SystemExit(f"{prompt.problem_id}: tokens differ between stores")
    return runs, freezes


@contextmanager
def frozen(server: RedisServer, seconds: list[float]) -> Iterator[None]:
    """Let a server answer nothing, and note for how long."""
    started = time.perf_counter()
    server.freeze()
    try:
        yield
    finally:
        server.thaw()
        seconds.append(time.perf_counter() - started)


def _row(name: str, runs: dict[str, list[Decoded]]) -> list[Cell]:
    milliseconds = 1000 * np.concatenate([decoded.step_s for decoded in runs[name]])
    medians = {other: [float(np.median(decoded.step_s)) for decoded in runs[other]] for other in (name, "memory")}
    ratio = ratio_interval(medians[name], medians["memory"])
    tokens_a_second = sum(decoded.n_tokens for decoded in runs[name]) / sum(sum(d.step_s) for d in runs[name])
    against = "1" if name == "memory" else f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
    quantiles = (float(np.quantile(milliseconds, q)) for q in (0.5, 0.99, 1.0))
    return [name, tokens_a_second, *quantiles, against]


@contextmanager
def feeding(server: RedisServer, deltas_a_second: float) -> Iterator[None]:
    """Let a process of its own send deltas of other contexts, as other verifiers would."""
    feeder = multiprocessing.get_context("spawn").Process(
        target=_feed, args=(server.opener(), deltas_a_second), daemon=True
    )
    feeder.start()
    try:
        yield
    finally:
        feeder.kill()
        feeder.join()


def _feed(opener: RedisLogOpener, deltas_a_second: float) -> None:
    log, blobs = opener(), [pack(delta) for delta in recurring_deltas(16, _DISTINCT)]
    for sequence in itertools.count():
        log.append(_SCOPE, "feeder", sequence, blobs[sequence % len(blobs)], sequence - 1)
        time.sleep(BATCH / deltas_a_second)


def tokens(arguments: argparse.Namespace) -> str:
    """The same seeds without drafts, without a store, and with stores that work, fail, come back, or are full of rubbish."""
    workshop = Workshop(arguments)
    with ExitStack() as servers:
        healthy, spoilt, dying, freezing = (servers.enter_context(running(arguments.server)) for _ in range(4))
        faults = {"killed and started again": (dying, _kill), "stopped for a while": (freezing, _stop)}
        faults |= {"with foreign entries": (spoilt, _spoil)}
        cases: dict[str, Callable[[], list[Cell]]] = {
            "no drafts": lambda: _decode_all(workshop, None, drafter="none"),
            "no store": lambda: _decode_all(workshop, None),
            "memory": lambda: _decode_all(workshop, MemoryStore()),
            "Redis": lambda: _decode_all(workshop, healthy.log()),
        }
        for name, (server, fault) in faults.items():
            cases[f"Redis, {name}"] = partial(_decode_all, workshop, server.log(), after_step=partial(fault, server))
        rows = [[name, *decode()] for name, decode in cases.items()]
    if len({row[1] for row in rows}) > 1:
        raise SystemExit(f"tokens differ: {[row[:2] for row in rows]}")
    return table(["store", "digest of all tokens", "tokens", "failures", "rejected", "batches sent"], rows)


def _decode_all(workshop: Workshop, log: StatisticsLog | None, *, drafter: str = "stand", **options: Any) -> list[Cell]:
    """Decode every problem; return a digest of the tokens, their number, and the counters of the replica."""
    worker = workshop.worker(workshop.n_samples, log, drafter=drafter)
    outputs = [worker.decode(workshop.requests(prompt, _SCOPE), **options).outputs for prompt in workshop.prompts]
    counters: list[Cell] = ["-", "-", "-"]
    if worker.replica is not None:
        statistics = worker.replica.statistics()
        counters = [statistics.failures, statistics.rejected, statistics.sent_batches]
    worker.close()
    digest = hashlib.sha256(repr([sorted(of_problem.items()) for of_problem in outputs]).encode()).hexdigest()[:12]
    return [digest, sum(len(ids) for of_problem in outputs for ids in of_problem.values()), *counters]


def _kill(server: RedisServer, n_steps: int) -> None:
    if n_steps % 20 == 5:
        server.kill()
    elif n_steps % 20 == 0:
        server.start()


def _stop(server: RedisServer, n_steps: int) -> None:
    if n_steps % 20 == 5:
        server.freeze()
    elif n_steps % 20 == 0:
        server.thaw()


def _spoil(server: RedisServer, n_steps: int) -> None:
    client = server.connection()
    for key in client.scan_iter("tts:*:log"):
        client.xadd(key, {"w": "stranger", "s": str(n_steps), "d": np.random.default_rng(n_steps).bytes(100)})
        client.xadd(key, {"anything": "else"})
