"""Logs in real servers: each batch once, whatever kind of server and connection it is."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.store.conftest import ServerStarter
from tests.store.deltas import contents, random_delta
from tests.store.redis_servers import Server, eventually, find_server, free_port, make_certificates
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import coalesce
from tts_orch.store.compactor import Compactor
from tts_orch.store.reader import ScopeReader
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ScopeKeys, entry_number, stream_id
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.redis_scopes import all_scopes, drop, measure
from tts_orch.store.wire import pack
from tts_orch.store_address import StoreAddress

pytestmark = pytest.mark.redis

SCOPE = 'weights/vocabulary/0/["problem", "{braces} and * stars"]'
BLOB = pack(random_delta(0))


def log_at(url: str) -> RedisLog:
    return RedisLog(RedisClient(StoreAddress.parse(url), "test"), ttl_s=0)


def sequences(log: RedisLog, scope: str = SCOPE) -> list[int]:
    return [entry.sequence for entry in log.read(scope, log.snapshot(scope).log_id).entries]


def test_batches_come_back_in_order_and_once_each(server: Server) -> None:
    log = log_at(server.url)
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    assert log.append(SCOPE, "ben", 0, BLOB) == 0
    assert log.append(SCOPE, "anna", 5, BLOB, 0) == 5
    assert log.append(SCOPE, "anna", 4, BLOB, 0) == 5  # it was on its way for long
    read = log.read(SCOPE, log.snapshot(SCOPE).log_id)
    assert [(entry.writer, entry.sequence) for entry in read.entries] == [("anna", 0), ("ben", 0), ("anna", 5)]
    assert {entry.blob for entry in read.entries} == {BLOB}
    assert read.last_id == read.entries[-1].id
    assert [entry.sequence for entry in log.read(SCOPE, read.entries[0].id).entries] == [0, 5]
    assert not log.read(SCOPE, read.last_id).entries
    assert sequences(log, "another scope") == []


def test_batch_is_refused_where_an_earlier_one_is_gone(server: Server) -> None:
    log = log_at(server.url)
    log.append(SCOPE, "anna", 0, BLOB)
    assert log.append(SCOPE, "anna", 2, BLOB, 1) == 0
    assert sequences(log) == [0]


def test_writers_whose_log_was_evicted_are_asked_for_everything(server: Server) -> None:
    log, client = log_at(server.url), server.client()
    for writer in ("anna", "ben"):
        log.append(SCOPE, writer, 0, BLOB)
    client.execute("DEL", ScopeKeys(SCOPE).log)
    assert log.append(SCOPE, "anna", 1, BLOB, 0) == -1
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    assert log.append(SCOPE, "ben", 1, BLOB, 0) == -1


def test_forgotten_scripts_are_sent_again(server: Server) -> None:
    log = log_at(server.url)
    log.append(SCOPE, "anna", 0, BLOB)
    server.client().execute("SCRIPT", "FLUSH")
    assert log.append(SCOPE, "anna", 1, BLOB, 0) == 1
    assert sequences(log) == [0, 1]


def test_scopes_leave_when_nobody_has_added_to_them_for_long(server: Server) -> None:
    client = server.client()
    log = RedisLog(client, ttl_s=60)
    log.append(SCOPE, "anna", 0, BLOB)
    keys = ScopeKeys(SCOPE)
    assert all(50_000 < client.execute("PTTL", key) <= 60_000 for key in (keys.log, keys.writers))


def test_values_of_others_are_counted_and_left_out(server: Server) -> None:
    log, client, keys = log_at(server.url), server.client(), ScopeKeys(SCOPE)
    log.append(SCOPE, "anna", 0, BLOB)
    for fields in (
        ("hello", "world"),
        ("w", "anna", "s", "-1", "d", BLOB),
        ("w", "anna", "s", "x", "d", BLOB),
        ("w", "anna", "s", 1 << 60, "d", BLOB),
        ("w", "anna", "s", "9" * 5000, "d", BLOB),
        ("w", "", "s", 1, "d", BLOB),
        ("w", b"\xff", "s", 1, "d", BLOB),
    ):
        client.execute("XADD", keys.log, "*", *fields)
    client.execute("XADD", keys.log, "*", "w", "ben", "s", 0, "d", b"no delta")
    log.append(SCOPE, "anna", 1, BLOB, 0)
    reader = ScopeReader(log, SCOPE, "cleo", 0)
    news = [reader.poll(0), reader.poll(0)]
    assert contents(coalesce([part.contexts for part in news])) == contents(coalesce([random_delta(0)] * 2))
    assert sum(part.n_rejected for part in news) == 8


def test_keys_of_another_type_make_room(server: Server) -> None:
    log, client, keys = log_at(server.url), server.client(), ScopeKeys(SCOPE)
    client.execute("SET", keys.log, "text")
    assert log.read(SCOPE, 0).entries == []
    assert log.read(SCOPE, 1).has_gap
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    client.execute("SET", keys.writers, "text")
    assert log.append(SCOPE, "anna", 1, BLOB, 0) == -1
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    client.execute("HSET", keys.writers, "anna", "text")
    assert log.append(SCOPE, "anna", 1, BLOB, 0) == -1
    assert log.append(SCOPE, "anna", 1, BLOB) == 1
    assert sequences(log) == [0, 0, 1]


def test_names_of_keys_belong_to_one_slot_and_are_found_again() -> None:
    for scope in (SCOPE, "}", "{}", "a}b{c", "täglich/?[x]\\*"):
        keys = ScopeKeys(scope)
        for key in (keys.log, keys.writers, keys.snapshot, keys.lease):
            assert ScopeKeys.of(key.encode()).scope == scope
            assert key[key.index("{") + 1 : key.index("}")] == keys.log[keys.log.index("{") + 1 : keys.log.index("}")]
            assert key.index("}") > key.index("{") + 1


def test_ids_of_entries_keep_their_order_as_numbers() -> None:
    ids = [b"0-0", b"0-1", b"5-18446744073709551615", b"6-0", b"1700000000000-3"]
    numbers = [entry_number(each) for each in ids]
    assert numbers == sorted(set(numbers))
    assert [stream_id(number).encode() for number in numbers] == ids


def test_password_and_users(start_server: ServerStarter, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start_server(
        ("requirepass", "secret"), ("user", "worker", "on", ">pass:word", "~tts:*", "+@all", "-@dangerous", "+info")
    )
    place = f"127.0.0.1:{server.port}"
    for userinfo in (":secret@", "worker:pass%3Aword@"):
        log = log_at(f"redis://{userinfo}{place}")
        log.append(SCOPE, userinfo[0], 0, BLOB)
        assert 0 in sequences(log)
    for url in (f"redis://{place}", f"redis://:wrong@{place}", f"redis://worker:secret@{place}"):
        with pytest.raises(StoreError, match=f"{place} refused the credentials .*TTS_ORCH_STORE_PASSWORD") as caught:
            RedisClient(StoreAddress.parse(url), "test").check()
        assert "wrong" not in str(caught.value).replace("WRONGPASS", "")
    monkeypatch.setenv("TTS_ORCH_STORE_PASSWORD", "secret")
    RedisClient(StoreAddress.parse(f"redis://{place}"), "test").check()


@pytest.mark.parametrize("server_program", ["redis"], indirect=True)  # the bundled Valkey is built without TLS
def test_tls_with_certificates_of_both_sides(start_server: ServerStarter, server_folder: Path) -> None:
    make_certificates(server_folder)
    files = {name: server_folder / name for name in ("ca.crt", "server.crt", "server.key", "client.crt", "client.key")}
    authority = f"ssl_ca_certs={files['ca.crt']}"
    server = start_server(
        ("tls-ca-cert-file", str(files["ca.crt"])),
        ("tls-cert-file", str(files["server.crt"])),
        ("tls-key-file", str(files["server.key"])),
        tls=f"{authority}&ssl_certfile={files['client.crt']}&ssl_keyfile={files['client.key']}",
    )
    log = log_at(server.url)
    log.append(SCOPE, "anna", 0, BLOB)
    assert sequences(log) == [0]
    for query, message in (("", "VERIFY_FAILED.*ssl_ca_certs"), (f"?{authority}", "cannot be reached.*ssl_certfile")):
        url = f"rediss://127.0.0.1:{server.port}{query}"
        with pytest.raises(StoreError, match=message):
            RedisClient(StoreAddress.parse(url), "test").check()
    with pytest.raises(StoreError):
        RedisClient(StoreAddress.parse(f"redis://127.0.0.1:{server.port}"), "test").check()
    with pytest.raises(StoreError, match="/nowhere"):
        RedisClient(StoreAddress.parse(f"rediss://127.0.0.1:{server.port}?ssl_ca_certs=/nowhere"), "test").check()


def test_unix_socket_and_database(start_server: ServerStarter, server_folder: Path) -> None:
    start_server(("unixsocket", str(server_folder / "s")))
    log, other = (log_at(f"unix://{server_folder}/s?db={database}") for database in (1, 2))
    log.append(SCOPE, "anna", 0, BLOB)
    assert (sequences(log), sequences(other)) == ([0], [])


@pytest.fixture
def cluster(start_server: ServerStarter) -> list[Server]:
    """Three nodes that share the slots."""
    nodes = [start_server(("cluster-enabled", "yes"), ("cluster-config-file", f"{i}.conf")) for i in range(3)]
    clients = [node.client() for node in nodes]
    for i, client in enumerate(clients):
        client.execute("CLUSTER ADDSLOTSRANGE", 16384 * i // 3, 16384 * (i + 1) // 3 - 1)
        client.execute("CLUSTER MEET", "127.0.0.1", nodes[0].port)
    eventually(lambda: all(b"cluster_state:ok" in _info(client) for client in clients), within_s=20)
    return nodes


def _info(client: RedisClient) -> bytes:
    answer = client.execute("CLUSTER INFO")
    return answer if isinstance(answer, bytes) else b"cluster_state:" + answer["cluster_state"].encode()


def test_cluster(cluster: list[Server]) -> None:
    url = f"redis+cluster://127.0.0.1:{cluster[0].port},127.0.0.1:{cluster[1].port}"
    client = RedisClient(StoreAddress.parse(url), "test")
    client.check()
    log = RedisLog(client, ttl_s=60)
    scopes = [f"scope {i}" for i in range(12)]
    for scope in scopes:
        assert [log.append(scope, "anna", i, BLOB, i - 1) for i in range(2)] == [0, 1]
        assert sequences(log, scope) == [0, 1]
    per_node = [sum(1 for _ in node.client().keys("tts:*:log")) for node in cluster]
    assert sum(per_node) == len(scopes)
    assert min(per_node) > 0
    assert all_scopes(client) == sorted(scopes)
    Compactor(client, fold_bytes=1).sweep()
    assert all(log.snapshot(scope).sequences == {"anna": 1} for scope in scopes)
    assert measure(client, scopes[0]).n_batches == 2
    for scope in scopes:
        drop(client, scope)
    assert all_scopes(client) == []
    with pytest.raises(StoreError, match=r"write redis\+cluster:// instead"):
        cluster[0].client().check()


@pytest.fixture
def sentinel(start_server: ServerStarter, server_folder: Path) -> Iterator[tuple[str, Server, Server]]:
    """A URL of a sentinel that watches a primary with a replica."""
    primary = start_server(("requirepass", "secret"), ("masterauth", "secret"), userinfo=":secret@")
    replica = start_server(
        ("requirepass", "secret"),
        ("masterauth", "secret"),
        ("replicaof", "127.0.0.1", str(primary.port)),
        userinfo=":secret@",
    )
    port = free_port()
    (server_folder / "sentinel.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndir {server_folder}\nsentinel monitor main 127.0.0.1 {primary.port} 1\n"
        "sentinel auth-pass main secret\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n"
    )
    program = find_server("redis")
    process = subprocess.Popen([program, str(server_folder / "sentinel.conf"), "--sentinel"], stdout=subprocess.DEVNULL)
    with ExitStack() as started:
        started.callback(process.wait)
        started.callback(process.kill)
        url = f"redis+sentinel://:secret@127.0.0.1:{port}/main"
        eventually(lambda: _has_replica(port), within_s=20)
        yield url, primary, replica


def _has_replica(port: int) -> bool:
    try:
        answer = RedisClient(StoreAddress.parse(f"redis://127.0.0.1:{port}"), "test").execute(
            "SENTINEL REPLICAS", "main"
        )
    except StoreError:
        return False
    return bool(answer) and b"slave" in str(answer).encode()


@pytest.mark.parametrize("server_program", ["redis"], indirect=True)  # for time's sake
def test_sentinel_and_failover(sentinel: tuple[str, Server, Server]) -> None:
    url, primary, replica = sentinel
    log = log_at(url)
    assert log.append(SCOPE, "anna", 0, BLOB) == 0
    eventually(lambda: sequences(log_at(replica.url)) == [0])
    with pytest.raises(StoreError, match="is a read-only replica"):
        log_at(replica.url).append(SCOPE, "anna", 1, BLOB, 0)
    primary.kill()
    appended: list[int] = []

    def append() -> bool:
        try:
            appended.append(log.append(SCOPE, "anna", 1, BLOB, 0))
        except StoreError:
            time.sleep(0.1)
        return bool(appended)

    eventually(append, within_s=30)
    assert appended == [1]
    assert sequences(log) == [0, 1]
