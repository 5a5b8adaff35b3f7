"""The compactor on real servers: it folds what is due, and goes on whatever fails."""

from __future__ import annotations

import pytest

from tests.store.folded_logs import folded, send, total
from tests.store.redis_servers import Server, eventually
from tts_orch.errors import StoreError
from tts_orch.store.compactor import Compactor
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_log import RedisLog

pytestmark = pytest.mark.redis


def test_compactor_folds_what_has_grown_and_what_has_come_to_rest(client: RedisClient, log: RedisLog) -> None:
    now = 0.0
    compactor = Compactor(client, fold_bytes=20_000, quiet_s=60, clock=lambda: now)
    send(log, range(2), scope="small")
    send(log, range(20), scope="large")
    compactor.sweep()
    assert (folded(log, "small"), folded(log, "large")) == ({}, total(range(20)))
    assert client.execute("XLEN", ScopeKeys("large").log) == 20
    send(log, [20], scope="large")
    compactor.sweep()
    assert folded(log, "large") == total(range(20))
    now = 59.0
    compactor.sweep()
    assert compactor.statistics.folds == 1
    now = 61.0
    compactor.sweep()
    assert (folded(log, "small"), folded(log, "large")) == (total(range(2)), total(range(21)))
    assert client.execute("XLEN", ScopeKeys("large").log) == 1
    now = 200.0
    compactor.sweep()
    now = 300.0
    compactor.sweep()
    assert (compactor.statistics.folds, compactor.statistics.folded_entries) == (3, 23)


def test_compactor_goes_on_after_a_scope_that_cannot_be_folded(client: RedisClient, log: RedisLog) -> None:
    compactor = Compactor(client, fold_bytes=1)
    client.execute("HSET", ScopeKeys("broken").lease, "not", "a lease")
    for scope in ("broken", *"abc"):
        send(log, range(2), scope=scope)
    with pytest.raises(StoreError, match="refused a command"):
        compactor.sweep()
    assert [folded(log, scope) for scope in "abc"] == [total(range(2))] * 3


def test_compactor_passes_over_what_is_no_log(client: RedisClient, log: RedisLog) -> None:
    for foreign in ("x", "y", "z"):
        client.execute("SET", ScopeKeys(foreign).log, "a text")
    send(log, range(2))
    Compactor(client, fold_bytes=1).sweep()
    assert folded(log) == total(range(2))


@pytest.mark.parametrize("has_warned", [False, True])
def test_compactors_thread_outlives_the_server(
    server: Server, has_warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    compactor = Compactor(server.client(), fold_bytes=1, quiet_s=0.1, interval_s=0.01)
    compactor.start(has_warned=has_warned)
    try:
        eventually(lambda: compactor.statistics.failures > 1)
        server.start()
        log = RedisLog(server.client(), ttl_s=0)
        send(log, range(3))
        eventually(lambda: folded(log) == total(range(3)))
        n_failures = compactor.statistics.failures
        server.kill()
        eventually(lambda: compactor.statistics.failures > n_failures + 1)
    finally:
        compactor.close()
    warnings = [record for record in caplog.records if record.name == "tts_orch.store.compactor"]
    assert len(warnings) == (1 if has_warned else 2)  # one whenever the server begins to fail
    assert "decoding goes on, and logs are folded when that is mended" in warnings[0].getMessage()
