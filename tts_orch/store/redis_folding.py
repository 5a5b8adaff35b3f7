"""Folds the log of one scope in Redis into its next snapshot; a fold that dies half-way changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta
from tts_orch.store.folding import fold, read_end
from tts_orch.store.lease import Lease
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.redis_snapshots import SnapshotHead, publish, read_head, read_snapshot, trim, write_bucket
from tts_orch.store.wire import pack, unpack_all

__all__ = ["FoldResult", "fold_log"]

_LEASE_MS: Final = 60_000
_BUCKETS_A_RENEWAL: Final = 256
_MOST_READ_BYTES: Final = 64 << 20
_MOST_CONTEXTS: Final = 1 << 22  # of a scope: four times what a draft table holds


@dataclass(frozen=True, slots=True)
class FoldResult:
    """What a fold did.

    Attributes:
        is_done: whether there is a new snapshot.
        n_entries: entries of the log that were read.
        n_rejected: those among them that could not be read.
    """

    is_done: bool = False
    n_entries: int = 0
    n_rejected: int = 0


def fold_log(client: RedisClient, keys: ScopeKeys, *, keeps_generation: bool) -> FoldResult:
    """Make the next snapshot of a scope, unless somebody else does just now, and trim the log.

    Args:
        client: of the server.
        keys: of the scope.
        keeps_generation: whether what is folded now stays in the log until the next fold, for readers who are behind.

    Raises:
        StoreError: the store failed, perhaps for want of memory: then what the current snapshot has is trimmed, if possible.
    """
    lease = Lease(client, keys.lease, _LEASE_MS)
    try:
        if not lease.take():
            return FoldResult()
        return _fold(client, keys, lease, keeps_generation)
    except StoreError:
        head = read_head(client, keys)
        if head is not None:
            trim(client, keys, head.log_id)
        raise
    finally:
        with suppress(StoreError):
            lease.release()


def _fold(client: RedisClient, keys: ScopeKeys, lease: Lease, keeps_generation: bool) -> FoldResult:
    snapshot, before = read_snapshot(client, keys), read_head(client, keys)
    end = read_end(RedisLog(client, ttl_s=0), keys.scope, snapshot, _MOST_READ_BYTES)
    if end is None or not end.n_entries:
        trim(client, keys, snapshot.log_id)
        return FoldResult()
    contexts, n_broken = unpack_all(end.blobs)
    least_count = 1 + (before.n_contexts // _MOST_CONTEXTS if before is not None else 0)
    head = SnapshotHead(
        generation=lease.token,
        log_id=end.last_id,
        sequences=dict(end.sequences),
        n_kept=1 + end.n_entries * keeps_generation,
        **_write(client, keys, lease, fold(snapshot.blobs, contexts, least_count)),
    )
    is_done = publish(client, keys, head, lease.token, snapshot.log_id if keeps_generation else end.last_id)
    return FoldResult(is_done, end.n_entries, end.n_rejected + n_broken)


def _write(client: RedisClient, keys: ScopeKeys, lease: Lease, buckets: Iterator[ContextDelta]) -> dict[str, int]:
    """Write the buckets of the next snapshot; return how many they are, and their contexts and bytes."""
    n_buckets = n_contexts = size_bytes = 0
    for bucket in buckets:
        blob = pack(bucket)
        write_bucket(client, keys, lease.token, n_buckets, blob)
        n_buckets += 1
        n_contexts += bucket.n_contexts
        size_bytes += len(blob)
        if n_buckets % _BUCKETS_A_RENEWAL == 0:
            lease.renew()
    return {"n_buckets": n_buckets, "n_contexts": n_contexts, "size_bytes": size_bytes}
