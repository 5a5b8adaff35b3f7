"""Checks of the statistics store: there, ours to write, bounded, and of a version that will do."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tts_orch.doctor.finding import Finding, ok, warning
from tts_orch.store_address import MEMORY_STORE, StoreAddress

if TYPE_CHECKING:
    from tts_orch.store.redis_client import RedisClient

__all__ = ["check_store"]


def check_store(url: str) -> Iterator[Finding]:
    """Yield the state of the store at a URL.

    Raises:
        OrchestratorError: it cannot be used; the message says why and what to do.
    """
    if url == MEMORY_STORE:
        yield ok("store", f"{MEMORY_STORE}: an actor of the cluster, which needs no server")
        return
    from tts_orch.store.redis_client import RedisClient  # an extra

    address = StoreAddress.parse(url)
    client = RedisClient(address, "doctor")
    try:
        client.check()
        yield ok("store", f"{address} answers in {_round_trip_ms(client):.1f} ms and can be written")
        if not address.is_cluster:
            yield _memory(client)
    finally:
        client.close()


def _round_trip_ms(client: RedisClient) -> float:
    """Write and remove a key that nobody else has."""
    key = f"tts:{{doctor}}:{time.time_ns()}"
    started = time.perf_counter()
    client.execute("SET", key, "1", "EX", 60)
    seconds = time.perf_counter() - started
    client.execute("DEL", key)
    return 1000 * seconds


def _memory(client: RedisClient) -> Finding:
    memory = client.execute("INFO", "memory")
    used, limit, policy = memory["used_memory"], memory["maxmemory"], memory["maxmemory_policy"]
    text = f"{used / 2**20:.0f} MiB used"
    if not limit:
        return warning("store memory", f"{text}, without a limit; set maxmemory, as deploy/redis.conf does")
    text = f"{text} of {limit / 2**20:.0f} MiB, {policy}"
    if policy == "noeviction":
        return warning("store memory", f"{text}: a full store refuses writes; set maxmemory-policy allkeys-lfu")
    return ok("store memory", text)
