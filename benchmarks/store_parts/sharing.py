"""What sharing gives: acceptance by trajectory, and how soon a worker drafts with what another has committed."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from store_parts.decoding import Worker, Workshop
from store_parts.rates import sharing_stand
from store_parts.servers import RedisServer, running
from tts_orch.bench.markdown import Cell, table
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.stand import Stand
from tts_orch.records import SamplingParams
from tts_orch.store.replica import Replica

__all__ = ["latency", "tau"]

_INTERVAL_S = 0.2
_GROUPS = ((0, 2), (2, 4), (4, 8), (8, 16))
_SCOPE = "problem"
_DEADLINE_S = 30.0


def tau(arguments: argparse.Namespace) -> str:
    """Acceptance by trajectory index: workers with tables of their own, shared through Redis, or one process for all.

    Workers take turns step by step and each decodes one trajectory at a time; drafts have a fixed size. A step takes as
    many times longer as there are workers, so the interval of exchanges is made longer by as much.
    """
    workshop = Workshop(arguments)
    rows: list[list[Cell]] = []
    for n_workers in arguments.workers:
        cases = ("one process", "shared", "isolated") if n_workers > 1 else ("one process",)
        means = {case: _mean_tau(workshop, case, n_workers, arguments) for case in cases}
        for case, by_index in means.items():
            groups = [float(np.mean(by_index[first:last])) for first, last in _GROUPS if last <= len(by_index)]
            mean = float(np.mean(by_index))
            rows.append([n_workers, case, *groups, mean, mean / float(np.mean(means["one process"]))])
    names = [f"{first + 1}-{last}" for first, last in _GROUPS if last <= arguments.samples]
    note = f"{len(workshop.prompts)} problems, {arguments.samples} trajectories of {arguments.tokens} tokens, "
    header = ["workers", "statistics", *names, "all", "against one process"]
    return note + f"{arguments.nodes} nodes a draft.\n\n" + table(header, rows, digits=3)


def _mean_tau(workshop: Workshop, case: str, n_workers: int, arguments: argparse.Namespace) -> list[float]:
    """Return the acceptance length of each trajectory, over all problems."""
    tokens, steps = np.zeros(arguments.samples), np.zeros(arguments.samples)
    for prompt in workshop.prompts:
        with running(arguments.server) as server:
            if case == "one process":
                workers = [workshop.worker(n_workers, nodes=arguments.nodes)]
            else:
                logs = [server.log() if case == "shared" else None for _ in range(n_workers)]
                interval_s = n_workers * _INTERVAL_S
                workers = [workshop.worker(1, log, nodes=arguments.nodes, interval_s=interval_s) for log in logs]
            requests = workshop.requests(prompt, _SCOPE)
            for i, worker in enumerate(workers):
                worker.submit(requests[i :: len(workers)])
            _take_turns(workers)
            for worker in workers:
                worker.close()
        for worker in workers:
            for index, output in worker.decoded.outputs.items():
                tokens[index] += len(output)
                steps[index] += worker.decoded.verify_steps[index]
    return (tokens / steps).tolist()


def _take_turns(workers: list[Worker]) -> None:
    while not all(worker.is_idle for worker in workers):
        for worker in workers:
            if not worker.is_idle:
                worker.step()


def latency(arguments: argparse.Namespace) -> str:
    """Time from a worker's commit until another one drafts with it, both between steps of a given length."""
    rows: list[list[Cell]] = []
    with running(arguments.server) as server:
        for step_ms in (5, 30, 100):
            delays = _delays(server, f"{step_ms} ms", step_ms / 1000, arguments.seconds)
            quantiles = [1000 * float(np.quantile(delays, q)) for q in (0.5, 0.9, 0.99)]
            rows.append([step_ms, len(delays), *quantiles])
    return table(["step, ms", "commits", "median, ms", "90 %", "99 %"], rows, digits=0)


def _delays(server: RedisServer, scope: str, step_s: float, seconds: float) -> list[float]:
    """Let one worker learn something in each step; return how long it took to arrive at the other one, in seconds."""
    writer, reader = (sharing_stand([scope], 1 << 16) for _ in range(2))
    replicas = [Replica(stand, server.log(), name) for stand, name in ((writer, "writer"), (reader, "reader"))]
    committed_at: dict[int, float] = {}
    delays: dict[int, float] = defaultdict(float)
    end, token = time.perf_counter() + seconds, 1
    while time.perf_counter() < end or (set(committed_at) - set(delays) and time.perf_counter() < end + _DEADLINE_S):
        for replica in replicas:
            replica.apply()
        _note_arrivals(reader, scope, committed_at, delays)
        if time.perf_counter() < end:
            _commit(writer, scope, token)
            committed_at[token] = time.perf_counter()
            token += 1
        time.sleep(step_s)
    for replica in replicas:
        replica.close()
    return list(delays.values())


def _note_arrivals(reader: Stand, scope: str, committed_at: Mapping[int, float], delays: dict[int, float]) -> None:
    now = time.perf_counter()
    for token in committed_at.keys() - delays.keys():
        if reader.table.lookup(scope, np.array([token], np.int32)) is not None:
            delays[token] = now - committed_at[token]


def _commit(stand: Stand, scope: str, token: int) -> None:
    """Verify a step after the text of one token."""
    text, committed = np.array([token], np.int32), np.array([0], np.int32)
    law = np.zeros((1, 1), np.int32), np.ones((1, 1), np.float32)
    stand.start(TrajectoryStart("step", text, scope, 0, SamplingParams()))
    stand.observe([VerifiedStep("step", DraftTree.root_only(token), np.zeros(0, np.int32), committed, *law)])
    stand.close("step")
