"""Servers that fail under replicas: decoding never waits for them, everybody ends up with everything, each part once."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.exactness.workers import DecodersInTurn
from tests.store.conftest import ServerStarter
from tests.store.deltas import learn
from tests.store.redis_servers import Server
from tests.store.sharing_workers import Worker, step_for, step_until
from tts_orch.config import DraftingConfig
from tts_orch.engine.threads import set_threads
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_file import default_tree
from tts_orch.records import Chunk, SamplingParams
from tts_orch.store.base import LogRead
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.replica import Replica
from tts_orch.store_address import StoreAddress

pytestmark = [pytest.mark.redis, pytest.mark.usefixtures("compiled_kernels")]


class WatchedLog(RedisLog):
    """Remembers which threads have waited for the server."""

    threads: set[str]

    def __init__(self, server: Server) -> None:
        super().__init__(server.client(timeout_s=0.2), ttl_s=0)
        self.threads = set()

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        self.threads.add(threading.current_thread().name)
        return super().append(scope, writer, sequence, blob, previous)

    def read(self, scope: str, after_id: int) -> LogRead:
        self.threads.add(threading.current_thread().name)
        return super().read(scope, after_id)


@pytest.fixture
def workers(server: Server) -> Iterator[list[Worker]]:
    yield from _workers(server)


def _workers(server: Server) -> Iterator[list[Worker]]:
    logs = [WatchedLog(server) for _ in range(2)]
    workers = [Worker(log, name) for log, name in zip(logs, ("anna", "ben"), strict=True)]
    yield workers
    for worker, log in zip(workers, logs, strict=True):
        worker.replica.close()
        assert log.threads == {"statistics-replica"}


def teach(workers: list[Worker], expected: dict[int, int], n: int = 1) -> None:
    """Let both learn something new."""
    for _ in range(n):
        token = 1 + len(expected)
        for worker in workers:
            learn(worker.stand, token)
            worker.replica.apply()
            time.sleep(0.005)
        expected[token] = 2


def agree(workers: list[Worker], expected: dict[int, int]) -> Callable[[], bool]:
    return lambda: all(worker.knowledge == expected for worker in workers)


def newcomer_knows(server: Server, expected: dict[int, int]) -> bool:
    """Whether one who joins now learns all there is, and nothing twice."""
    newcomer = Worker(WatchedLog(server), f"newcomer-{time.monotonic_ns()}")
    try:
        step_until(lambda: newcomer.knowledge == expected, newcomer)
        step_for(0.05, newcomer)
        return newcomer.knowledge == expected
    finally:
        newcomer.replica.close()


def fails_and_recovers(
    server: Server,
    workers: list[Worker],
    fault: Callable[[], object],
    repair: Callable[[], object],
    caplog: pytest.LogCaptureFixture,
) -> list[str]:
    """Return the warnings of a store that fails and is repaired while both workers go on learning."""
    expected: dict[int, int] = {}
    teach(workers, expected, 3)
    step_until(agree(workers, expected), *workers)
    with caplog.at_level(logging.WARNING):
        caplog.clear()
        fault()
        teach(workers, expected, 3)
        step_until(lambda: all(worker.replica.statistics().failures for worker in workers), *workers)
        teach(workers, expected)
    repair()
    teach(workers, expected)
    step_until(agree(workers, expected), *workers)
    assert newcomer_knows(server, expected)
    return [record.getMessage() for record in caplog.records if record.name == "tts_orch.store.replica"]


def configure(server: Server, name: str, value: str) -> Callable[[], object]:
    return lambda: server.client().execute("CONFIG", "SET", name, value)


def test_killed_and_empty_afterwards(server: Server, workers: list[Worker], caplog: pytest.LogCaptureFixture) -> None:
    warnings = fails_and_recovers(server, workers, server.kill, server.start, caplog)
    assert len(warnings) == 2  # one of each worker
    assert all("cannot be reached" in warning and "decoding goes on" in warning for warning in warnings)
    statistics = [worker.replica.statistics() for worker in workers]
    assert all(each.resent_batches for each in statistics)
    assert not any(each.lost_contexts or each.dropped_contexts for each in statistics)


def test_killed_with_a_file_of_everything(start_server: ServerStarter, caplog: pytest.LogCaptureFixture) -> None:
    server = start_server(("appendonly", "yes"), ("appendfsync", "always"))
    for workers in _workers(server):
        fails_and_recovers(server, workers, server.kill, server.start, caplog)
        assert not any(worker.replica.statistics().resent_batches for worker in workers)


def test_frozen(server: Server, workers: list[Worker], caplog: pytest.LogCaptureFixture) -> None:
    warnings = fails_and_recovers(server, workers, server.freeze, server.thaw, caplog)
    assert [warning.count("does not answer in time") for warning in warnings] == [1, 1]


def test_out_of_memory(server: Server, workers: list[Worker], caplog: pytest.LogCaptureFixture) -> None:
    fault, repair = configure(server, "maxmemory", "1"), configure(server, "maxmemory", "0")
    warnings = fails_and_recovers(server, workers, fault, repair, caplog)
    assert [warning.count("is out of memory; raise its maxmemory") for warning in warnings] == [1, 1]


def test_read_only(server: Server, workers: list[Worker], caplog: pytest.LogCaptureFixture) -> None:
    def become_replica() -> None:
        server.client().execute("CONFIG", "SET", "replica-serve-stale-data", "yes")
        server.client().execute("REPLICAOF", "127.0.0.1", "1")

    repair = lambda: server.client().execute("REPLICAOF", "NO", "ONE")  # noqa: E731
    warnings = fails_and_recovers(server, workers, become_replica, repair, caplog)
    assert [warning.count("is a read-only replica") for warning in warnings] == [1, 1]


def test_password_changed(server: Server, workers: list[Worker], caplog: pytest.LogCaptureFixture) -> None:
    def lock() -> None:
        server.client().execute("CONFIG", "SET", "requirepass", "secret")
        server.userinfo = ":secret@"
        server.client().execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    def unlock() -> None:
        server.client().execute("CONFIG", "SET", "requirepass", "")
        server.userinfo = ""

    warnings = fails_and_recovers(server, workers, lock, unlock, caplog)
    assert [warning.count("refused the credentials") for warning in warnings] == [1, 1]


def test_scripts_forgotten_and_connections_cut(server: Server, workers: list[Worker]) -> None:
    expected: dict[int, int] = {}
    for _ in range(5):
        teach(workers, expected, 2)
        server.client().execute("SCRIPT", "FLUSH")
        server.client().execute("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    step_until(agree(workers, expected), *workers)
    assert newcomer_knows(server, expected)


@pytest.mark.parametrize("part", ["log", "writers", "all"])
def test_keys_evicted(server: Server, workers: list[Worker], part: str) -> None:
    keys = ScopeKeys("scope")
    gone = {"log": [keys.log], "writers": [keys.writers], "all": [keys.log, keys.writers]}[part]
    expected: dict[int, int] = {}
    teach(workers, expected, 3)
    step_until(agree(workers, expected), *workers)
    server.client().execute("DEL", *gone)
    teach(workers, expected, 2)
    step_until(agree(workers, expected), *workers)
    assert newcomer_knows(server, expected)


def test_writer_with_nothing_new_sends_again_too(server: Server, workers: list[Worker]) -> None:
    anna, ben = workers
    expected: dict[int, int] = {}
    teach(workers, expected, 2)
    step_until(agree(workers, expected), *workers)
    server.client().execute("FLUSHALL")
    learn(ben.stand, 9)
    expected[9] = 1
    step_until(lambda: anna.replica.statistics().resent_batches > 0, *workers)
    step_until(agree(workers, expected), *workers)
    assert newcomer_knows(server, expected)


def test_foreign_values_reach_no_drafter(server: Server, workers: list[Worker]) -> None:
    client, log = server.client(), ScopeKeys("scope").log
    expected: dict[int, int] = {}
    teach(workers, expected)
    step_until(agree(workers, expected), *workers)
    client.execute("XADD", log, "*", "w", "stranger", "s", 0, "d", b"TTSD" + bytes(50))
    client.execute("XADD", log, "*", "key", "value")
    teach(workers, expected)
    step_until(lambda: all(worker.replica.statistics().rejected == 2 for worker in workers), *workers)
    step_until(agree(workers, expected), *workers)
    client.execute("SET", log, "text")
    teach(workers, expected)
    step_until(agree(workers, expected), *workers)
    assert newcomer_knows(server, expected)


def test_absent_at_first(start_server: ServerStarter) -> None:
    server = start_server()
    server.kill()
    with pytest.raises(StoreError, match=rf"^store: redis://127.0.0.1:{server.port} cannot be reached .*start it"):
        server.client().check()
    for workers in _workers(server):
        expected: dict[int, int] = {}
        teach(workers, expected, 3)
        step_until(lambda w=workers: all(worker.replica.statistics().failures for worker in w), *workers)
        server.start()
        step_until(agree(workers, expected), *workers)


class FailingWorkers(DecodersInTurn):
    """Two decoders in turn, over a server to which something happens before each step."""

    def __init__(self, server: Server | None, happenings: Iterator[Callable[[], object]]) -> None:
        self._happenings = happenings
        config = DraftingConfig(table_entries=1 << 12)
        stands = [Stand(config, default_tree(), vocabulary_size=1 << 31, records_deltas=True) for _ in range(2)]
        super().__init__([new_decoder(toy_target(), stand) for stand in stands])
        self.replicas = (
            [Replica(stand, WatchedLog(server), str(i), interval_s=0.002) for i, stand in enumerate(stands)]
            if server
            else []
        )

    def step(self) -> list[Chunk]:
        next(self._happenings)()
        for replica in self.replicas:
            replica.apply()
        return super().step()


@pytest.mark.parametrize("server_program", ["redis"], indirect=True)  # for time's sake
def test_no_fault_changes_a_token(server: Server) -> None:
    set_threads(1)
    requests = [
        request(f"r{i}", prompt(24), SamplingParams(temperature=0.8, max_new_tokens=48)) for i in range(8)
    ]  # one prompt: they have much to tell each other

    def nothing() -> None:
        time.sleep(0.005)

    client = RedisClient(StoreAddress.parse(server.url), "test")
    calm, faults = [nothing] * 6, [server.freeze, server.thaw, server.kill, server.start]
    happenings = [
        *calm, *faults, *calm, lambda: client.execute("FLUSHALL"), *calm, lambda: client.execute("SCRIPT", "FLUSH"), *calm
    ]  # fmt: skip
    plain = decode(new_decoder(toy_target()), requests)
    undisturbed = decode(FailingWorkers(server, itertools.repeat(nothing)), requests)
    server.client().execute("FLUSHALL")
    workers = FailingWorkers(server, itertools.cycle(happenings))
    disturbed = decode(workers, requests)
    tokens = {name: outcome.tokens for name, outcome in plain.items()}
    for outcomes in (undisturbed, disturbed):
        assert {name: outcome.tokens for name, outcome in outcomes.items()} == tokens
    assert any(replica.statistics().failures for replica in workers.replicas)
    assert any(replica.statistics().merged_contexts for replica in workers.replicas)
    server.thaw()
    for replica in workers.replicas:
        replica.close()
