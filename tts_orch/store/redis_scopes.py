"""The scopes that a server has statistics of: which, how large, and how they are dropped."""

from __future__ import annotations

from dataclasses import dataclass

from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ALL_KEYS, ScopeKeys

__all__ = ["ScopeSize", "all_scopes", "drop", "measure"]


@dataclass(frozen=True, slots=True)
class ScopeSize:
    """What a scope takes.

    Attributes:
        n_batches: entries of its log.
        log_bytes: memory of the log.
        snapshot_bytes: memory of the snapshot.
        ttl_s: seconds until it is dropped unless somebody adds to it, None for never.
    """

    n_batches: int
    log_bytes: int
    snapshot_bytes: int
    ttl_s: int | None

    @property
    def size_bytes(self) -> int:
        """Memory of both."""
        return self.log_bytes + self.snapshot_bytes


def all_scopes(client: RedisClient) -> list[str]:
    """Return the names of all scopes, sorted.

    Raises:
        StoreError: the store failed.
    """
    return sorted({ScopeKeys.of(key).scope for key in client.keys(ALL_KEYS)})


def measure(client: RedisClient, scope: str) -> ScopeSize:
    """Ask the server how large a scope is. Raises as `all_scopes` does."""
    keys = ScopeKeys(scope)
    is_log = client.execute("TYPE", keys.log) == b"stream"  # what is not ours may be of another type
    n_batches = int(client.execute("XLEN", keys.log)) if is_log else 0
    log_bytes, snapshot_bytes = (client.execute("MEMORY USAGE", key) or 0 for key in (keys.log, keys.snapshot))
    ttl_s = max(int(client.execute("TTL", key)) for key in (keys.log, keys.snapshot))
    return ScopeSize(n_batches, int(log_bytes), int(snapshot_bytes), ttl_s if ttl_s >= 0 else None)


def drop(client: RedisClient, scope: str) -> None:
    """Drop a scope. Workers that are at it go on with what they know, and send what they learn from then on. Raises as above."""
    keys = ScopeKeys(scope)
    client.execute("UNLINK", keys.lease, keys.log, keys.writers, keys.snapshot)
