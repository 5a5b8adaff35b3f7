"""Snapshots and trimming in real servers: readers miss nothing, whatever is folded, lost or foreign."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.store.conftest import ServerStarter
from tests.store.deltas import contents, random_delta
from tests.store.folded_logs import SCOPE, folded, send, total
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.compactor import Compactor
from tts_orch.store.lease import Lease
from tts_orch.store.reader import ScopeReader
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_folding import fold_log
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.redis_snapshots import SnapshotHead, publish, read_head, read_snapshot, write_bucket
from tts_orch.store.wire import pack, unpack_all

pytestmark = pytest.mark.redis

KEYS = ScopeKeys(SCOPE)


def read_on(reader: ScopeReader) -> ContextDelta:
    """Poll until nothing new comes, from a table that is replaced by reloads."""
    table = ContextDelta.empty()
    for _ in range(6):
        news = reader.poll(0)
        table = news.contexts if news.is_reload else coalesce([table, news.contexts])
    return table


def test_snapshot_is_the_sum_of_the_log_with_every_writer(client: RedisClient, log: RedisLog) -> None:
    send(log, range(5))
    send(log, [7, 9], writer="ben")
    assert log.snapshot(SCOPE).blobs == []
    result = fold_log(client, KEYS, keeps_generation=True)
    assert (result.is_done, result.n_entries, result.n_rejected) == (True, 7, 0)
    assert folded(log) == total([*range(5), 7, 9])
    snapshot = log.snapshot(SCOPE)
    assert snapshot.sequences == {"anna": 4, "ben": 9}
    assert log.read(SCOPE, snapshot.log_id).entries == []
    send(log, [5])
    assert [entry.sequence for entry in log.read(SCOPE, snapshot.log_id).entries] == [5]
    assert not fold_log(client, KEYS, keeps_generation=True).n_rejected
    assert folded(log) == total([*range(6), 7, 9])


def test_batches_that_come_again_are_folded_once(client: RedisClient, log: RedisLog) -> None:
    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=False)
    client.execute("DEL", KEYS.writers)  # as if the server had lost what it knew of the writer
    send(log, [1, 2, 3])
    fold_log(client, KEYS, keeps_generation=False)
    assert folded(log) == total(range(4))


def test_trimming_lags_a_generation_and_keeps_the_entry_readers_stand_on(client: RedisClient, log: RedisLog) -> None:
    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=True)
    assert client.execute("XLEN", KEYS.log) == 3
    send(log, range(3, 8))
    fold_log(client, KEYS, keeps_generation=True)
    assert client.execute("XLEN", KEYS.log) == 6
    fold_log(client, KEYS, keeps_generation=False)  # with nothing new: what is folded goes
    assert client.execute("XLEN", KEYS.log) == 1
    reader = ScopeReader(log, SCOPE, "ben", 0)
    read_on(reader)
    send(log, [8])
    assert contents(reader.poll(0).contexts) == total([8])


@given(
    actions=st.lists(
        st.sampled_from(["send", "read", "fold", "fold and trim", "lose log", "lose snapshot"]), max_size=14
    )
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_readers_miss_nothing_unless_the_store_has_lost_it(
    client: RedisClient, log: RedisLog, actions: list[str]
) -> None:
    client.execute("FLUSHDB")
    reader, sent, lost = ScopeReader(log, SCOPE, "ben", 0), 0, False
    known = contents(reader.poll(0).contexts)
    table = ContextDelta.empty()
    assert known == {}
    for action in [*actions, "read"]:
        match action:
            case "send":
                send(log, [sent])
                sent += 1
            case "fold" | "fold and trim":
                fold_log(client, KEYS, keeps_generation=action == "fold")
            case "lose log" | "lose snapshot":
                client.execute("UNLINK", KEYS.log if action == "lose log" else KEYS.snapshot)
                lost = True
            case "read":
                for _ in range(4):
                    news = reader.poll(0)
                    table = news.contexts if news.is_reload else coalesce([table, news.contexts])
                if not lost:
                    assert contents(table) == total(range(sent))
    everything = total(range(sent))
    assert all(count <= everything[key][1] for key, (_, count, _) in contents(table).items())  # never anything twice


def test_reader_who_is_behind_is_told(client: RedisClient, log: RedisLog) -> None:
    send(log, [0])
    (first,) = log.read(SCOPE, log.snapshot(SCOPE).log_id).entries
    send(log, range(1, 4))
    fold_log(client, KEYS, keeps_generation=False)
    assert log.read(SCOPE, first.id).has_gap
    assert log.read(SCOPE, 0).has_gap


def test_log_that_comes_back_from_the_dead_is_a_gap(client: RedisClient, log: RedisLog) -> None:
    send(log, range(3))
    last = log.read(SCOPE, log.snapshot(SCOPE).log_id).last_id
    client.execute("DEL", KEYS.log)
    assert log.read(SCOPE, last).has_gap
    client.execute("XADD", KEYS.log, "5-0", "w", "anna", "s", 9, "d", pack(random_delta(9)))  # its clock was set back
    assert log.read(SCOPE, last).has_gap
    reader = ScopeReader(log, SCOPE, "ben", 0)
    assert contents(read_on(reader)) == total([9])


def test_only_the_holder_of_the_lease_publishes(client: RedisClient, log: RedisLog) -> None:
    send(log, range(2))
    mine, theirs = Lease(client, KEYS.lease, 60_000), Lease(client, KEYS.lease, 60_000)
    assert mine.take()
    assert mine.take()  # an order sent twice
    assert not theirs.take()
    assert not fold_log(client, KEYS, keeps_generation=True).is_done
    client.execute("DEL", KEYS.lease)  # it ran out
    assert theirs.take()
    head = SnapshotHead(generation="late", log_id=1, sequences={}, n_buckets=1, n_contexts=1, size_bytes=1, n_kept=0)
    write_bucket(client, KEYS, "late", 0, pack(random_delta(0)))
    assert not mine.renew()
    assert not publish(client, KEYS, head, mine.token, trimmed_id=10**40)
    mine.release()
    assert client.execute("XLEN", KEYS.log) == 2
    assert read_head(client, KEYS) is None
    assert theirs.renew()
    assert 0 < client.execute("PTTL", KEYS.next_snapshot("late")) <= 600_000  # what nobody published goes by itself


def test_snapshot_that_was_evicted_while_it_was_written_is_not_published(client: RedisClient, log: RedisLog) -> None:
    class Evicting(RedisClient):
        def execute(self, *command: str | bytes | int | float) -> Any:
            if command[0] == "HSET":
                super().execute("UNLINK", command[1])
            return super().execute(*command)

    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=False)
    send(log, [3])
    assert not fold_log(Evicting(client.address, "test"), KEYS, keeps_generation=False).is_done
    assert folded(log) == total(range(3))
    assert contents(read_on(ScopeReader(log, SCOPE, "ben", 0))) == total(range(4))


def test_snapshot_lives_as_long_as_its_log(client: RedisClient) -> None:
    log, compactor = RedisLog(client, ttl_s=100), Compactor(client, fold_bytes=1 << 30)
    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=True)
    assert client.execute("PEXPIRETIME", KEYS.snapshot) == client.execute("PEXPIRETIME", KEYS.log) > 0
    client.execute("PEXPIRE", KEYS.snapshot, 50_000)
    send(log, [3])
    compactor.sweep()
    assert client.execute("PEXPIRETIME", KEYS.snapshot) == client.execute("PEXPIRETIME", KEYS.log)
    forever = RedisLog(client, ttl_s=0)
    send(forever, range(3), scope="other")
    fold_log(client, ScopeKeys("other"), keeps_generation=True)
    assert client.execute("PTTL", ScopeKeys("other").snapshot) == -1


HEAD = {
    "generation": "x",
    "log_id": 0,
    "sequences": {},
    "n_buckets": 0,
    "n_contexts": 0,
    "size_bytes": 0,
    "n_kept": 0,
}


@pytest.mark.parametrize(
    "head",
    [
        "not JSON",
        "[1]",
        json.dumps({"generation": "x"}),
        json.dumps({**HEAD, "log_id": 1 << 200}),
        json.dumps({**HEAD, "sequences": {"w": -1}}),
        json.dumps({**HEAD, "n_buckets": 1 << 40}),
    ],
)
def test_foreign_snapshots_are_counted_ignored_and_replaced(client: RedisClient, log: RedisLog, head: str) -> None:
    send(log, range(3))
    client.execute("HSET", KEYS.snapshot, "head", head)
    first = ScopeReader(log, SCOPE, "ben", 0).poll(0)
    assert (first.n_rejected, first.contexts.n_contexts) == (1, 0)
    assert contents(read_on(ScopeReader(log, SCOPE, "ben", 0))) == total(range(3))
    fold_log(client, KEYS, keeps_generation=False)
    assert folded(log) == total(range(3))


def test_values_of_another_type_are_no_snapshot(client: RedisClient, log: RedisLog) -> None:
    send(log, range(3))
    client.execute("SET", KEYS.snapshot, "a text")
    assert contents(read_on(ScopeReader(log, SCOPE, "ben", 0))) == total(range(3))
    fold_log(client, KEYS, keeps_generation=False)
    assert folded(log) == total(range(3))


def test_buckets_that_are_gone_or_broken_cost_their_contexts_only(client: RedisClient, log: RedisLog) -> None:
    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=False)
    head = read_head(client, KEYS)
    assert head is not None
    client.execute("HSET", KEYS.snapshot, "head", head.model_copy(update={"n_buckets": 3}).model_dump_json())
    client.execute("HSET", KEYS.snapshot, "1", "broken")
    news = ScopeReader(log, SCOPE, "ben", 0).poll(0)
    assert (contents(news.contexts), news.n_rejected) == (total(range(3)), 2)


def test_broken_snapshot_does_not_replace_what_a_table_knows(client: RedisClient, log: RedisLog) -> None:
    send(log, [0])
    reader = ScopeReader(log, SCOPE, "ben", 0)
    assert contents(read_on(reader)) == total([0])
    send(log, [1, 2])
    fold_log(client, KEYS, keeps_generation=False)
    head = read_head(client, KEYS)
    assert head is not None
    client.execute("HSET", KEYS.snapshot, "head", head.model_copy(update={"n_buckets": 2}).model_dump_json())
    news = reader.poll(0)
    assert (news.contexts.n_contexts, news.is_reload, news.n_rejected) == (0, False, 1)
    send(log, [3])
    assert contents(read_on(reader)) == total([3])


def test_entries_that_nobody_of_ours_wrote_are_counted_and_skipped(client: RedisClient, log: RedisLog) -> None:
    send(log, [0])
    client.execute("XADD", KEYS.log, "*", "field", "value")
    client.execute("XADD", KEYS.log, "*", "w", "stranger", "s", 0, "d", "no delta")
    send(log, [1])
    result = fold_log(client, KEYS, keeps_generation=False)
    assert (result.n_entries, result.n_rejected) == (4, 2)
    assert folded(log) == total(range(2))


def test_snapshot_that_changes_while_it_is_read_is_read_again(client: RedisClient, log: RedisLog) -> None:
    class Meddled(RedisClient):
        n_folds = 2

        def execute(self, *command: str | bytes | int | float) -> Any:
            answer = super().execute(*command)
            if command[0] == "HMGET" and self.n_folds:
                self.n_folds -= 1
                send(log, [10 + self.n_folds], writer=f"writer-{self.n_folds}")
                fold_log(client, KEYS, keeps_generation=False)
            return answer

    send(log, range(3))
    fold_log(client, KEYS, keeps_generation=False)
    meddled = Meddled(client.address, "test")
    snapshot = read_snapshot(meddled, KEYS)
    assert contents(unpack_all(snapshot.blobs)[0]) == total([0, 1, 2, 10, 11])
    meddled.n_folds = 1000
    with pytest.raises(StoreError, match="replaced faster"):
        read_snapshot(meddled, KEYS)


def test_full_server_is_trimmed_to_its_snapshot(start_server: ServerStarter) -> None:
    server = start_server(("maxmemory-policy", "noeviction"))
    client = server.client()
    log = RedisLog(client, ttl_s=0)
    send(log, range(20))
    fold_log(client, KEYS, keeps_generation=True)
    before = client.execute("XLEN", KEYS.log)
    client.execute("CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(StoreError, match="out of memory"):
        send(log, [20])
    with pytest.raises(StoreError, match="out of memory"):
        fold_log(client, KEYS, keeps_generation=True)
    assert client.execute("XLEN", KEYS.log) == 1 < before
    client.execute("CONFIG", "SET", "maxmemory", 0)
    send(log, [20])
    fold_log(client, KEYS, keeps_generation=True)
    assert folded(log) == total(range(21))


def test_eviction_loses_statistics_and_nothing_else(start_server: ServerStarter) -> None:
    server = start_server(("maxmemory-policy", "allkeys-lfu"))
    client = server.client()
    log, compactor = RedisLog(client, ttl_s=0), Compactor(client, fold_bytes=1)
    delta = random_delta(0, n_tokens=100)
    room = 40 * len(pack(delta))
    client.execute("CONFIG", "SET", "maxmemory", client.execute("INFO", "memory")["used_memory"] + room)
    scopes = [f"scope-{i}" for i in range(12)]
    for sequence in range(6):
        for scope in scopes:
            with suppress(StoreError):  # evicting takes time, and a full server may refuse a write meanwhile
                log.append(scope, "anna", sequence, pack(delta))
        with suppress(StoreError):
            compactor.sweep()
    assert client.execute("INFO", "stats")["evicted_keys"] > 0
    assert compactor.statistics.folds > 0
    most = {key: 6 * count for key, (_, count, _) in contents(delta).items()}
    for scope in scopes:
        table = contents(read_on(ScopeReader(log, scope, "ben", 0)))
        assert all(count <= most[key] for key, (_, count, _) in table.items())
