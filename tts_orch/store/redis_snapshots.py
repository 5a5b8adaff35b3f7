"""Snapshots in Redis: the folded beginning of a scope's log, in buckets of contexts, read and replaced as a whole."""

from __future__ import annotations

import json
from typing import Annotated, Final

from pydantic import Field

from tts_orch.errors import ConfigError, StoreError
from tts_orch.settings import Settings
from tts_orch.store.base import Snapshot
from tts_orch.store.redis_client import RedisClient, Script
from tts_orch.store.redis_keys import ScopeKeys, entry_number, stream_id

__all__ = ["SnapshotHead", "goes_on", "keep_with_log", "publish", "read_head", "read_snapshot", "trim", "write_bucket"]

_HEAD: Final = "head"
_BUCKETS_AT_ONCE: Final = 32
_TRIES: Final = 5
_UNFINISHED_MS: Final = 600_000  # what is left of a next snapshot whose writer died is gone by then
_Count = Annotated[int, Field(ge=0, lt=(1 << 128) - 1)]  # as large as ids of entries


class SnapshotHead(Settings):
    """What a snapshot says of itself."""

    generation: str
    """A name that no other snapshot has."""
    log_id: _Count
    """Id of the last entry in it."""
    sequences: dict[str, _Count]
    """Last sequence number in it by writer."""
    n_buckets: Annotated[int, Field(ge=0, le=1 << 20)]
    """Buckets of contexts."""
    n_contexts: _Count
    """Contexts in all of them."""
    size_bytes: _Count
    """Bytes of all of them."""
    n_kept: _Count
    """Entries in it that the log still has."""


# Values of another type are not ours: they count as a head that cannot be read, and as no log.
_STATE: Final = Script("""
local head = redis.pcall('HGET', KEYS[1], 'head')
if type(head) == 'table' then head = 'a value of another type' end
local first = redis.pcall('XRANGE', KEYS[2], '-', '+', 'COUNT', 1)
if first.err or not first[1] then return {head, false, 0} end
return {head, first[1][1], #redis.call('XRANGE', KEYS[2], ARGV[1], ARGV[1])}
""")

_GOES_ON: Final = Script("""
local entry = redis.pcall('XRANGE', KEYS[1], ARGV[1], ARGV[1])
if entry.err then return 0 end
if #entry == 1 then return 1 end
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return (first and first[1] == ARGV[2]) and 1 or 0
""")

# The lease is gone afterwards, so this does its work once, however often it is sent. A next snapshot that was evicted while
# it was written, in whole or before its last buckets, never takes the place of a complete one.
_PUBLISH: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[3]) then return 0 end
redis.call('UNLINK', KEYS[3])
redis.call('RENAME', KEYS[2], KEYS[3])
local ends = redis.call('PEXPIRETIME', KEYS[4])
if ends > 0 then redis.call('PEXPIREAT', KEYS[3], ends) elseif ends == -1 then redis.call('PERSIST', KEYS[3]) end
redis.call('XTRIM', KEYS[4], 'MINID', ARGV[2])
redis.call('DEL', KEYS[1])
return 1
""")

_KEEP: Final = Script("""
local ends = redis.call('PEXPIRETIME', KEYS[2])
if ends > 0 then redis.call('PEXPIREAT', KEYS[1], ends) end
return ends
""")


def read_snapshot(client: RedisClient, keys: ScopeKeys) -> Snapshot:
    """Return the current snapshot of a scope, an empty one if nothing was folded.

    A log can be read on after its `log_id` without a gap, whatever of snapshot and log was lost. What cannot be read is a
    blob that no delta was packed into.

    Raises:
        StoreError: the store failed, or the snapshot is replaced faster than it can be read.
    """
    packed_head, _begin = _state(client, keys, 0)
    for _ in range(_TRIES):
        head, before = _parse(packed_head), packed_head
        blobs = _buckets(client, keys, head) if head is not None else [b""] if packed_head is not None else []
        packed_head, begin = _state(client, keys, head.log_id if head is not None else 0)
        if packed_head == before:
            return Snapshot(begin, head.sequences if head is not None else {}, blobs)
    raise StoreError(f"store: the snapshot of {keys.scope!r} is replaced faster than it can be read")


def read_head(client: RedisClient, keys: ScopeKeys) -> SnapshotHead | None:
    """Return what the current snapshot says of itself, None where there is none that can be read."""
    packed_head, _begin = _state(client, keys, 0)
    return _parse(packed_head)


def goes_on(client: RedisClient, keys: ScopeKeys, log_id: int) -> bool:
    """Return whether nothing is missing from a log after an id: it still has the entry, or begins with the next one."""
    return bool(client.run(_GOES_ON, [keys.log], [stream_id(log_id), stream_id(log_id + 1)]))


def write_bucket(client: RedisClient, keys: ScopeKeys, generation: str, bucket: int, blob: bytes) -> None:
    """Write one bucket of the next snapshot."""
    key = keys.next_snapshot(generation)
    client.execute_all([("HSET", key, str(bucket), blob), ("PEXPIRE", key, _UNFINISHED_MS)])


def publish(client: RedisClient, keys: ScopeKeys, head: SnapshotHead, token: str, trimmed_id: int) -> bool:
    """Make a written snapshot the current one and trim the log, in one step, if it is complete and the lease still ours.

    It lives as long as the log.

    Args:
        client: of the server.
        keys: of the scope.
        head: of the written snapshot.
        token: in the lease, which ends with this.
        trimmed_id: the log keeps this entry and what follows.

    Returns:
        Whether it was done now; after a lost answer it may have been done before.
    """
    key = keys.next_snapshot(head.generation)
    client.execute("HSET", key, _HEAD, json.dumps(head.model_dump()))
    all_keys = (keys.lease, key, keys.snapshot, keys.log)
    return bool(client.run(_PUBLISH, all_keys, (token, stream_id(trimmed_id), head.n_buckets + 1)))


def keep_with_log(client: RedisClient, keys: ScopeKeys) -> None:
    """Let the snapshot live as long as the log, whose life every new entry prolongs."""
    client.run(_KEEP, (keys.snapshot, keys.log), [])


def trim(client: RedisClient, keys: ScopeKeys, log_id: int) -> None:
    """Drop entries before one that a snapshot ends with."""
    client.execute("XTRIM", keys.log, "MINID", stream_id(log_id))


def _state(client: RedisClient, keys: ScopeKeys, log_id: int) -> tuple[bytes | None, int]:
    """Return the packed head of the current snapshot, and after which id to read on.

    That is the given one, or all there is, where the log does not go on there.
    """
    head, first, has_entry = client.run(_STATE, (keys.snapshot, keys.log), [stream_id(log_id)])
    if first is None:
        return head, 0
    return head, log_id if has_entry else entry_number(first) - 1


def _parse(packed_head: bytes | None) -> SnapshotHead | None:
    try:
        return SnapshotHead(**json.loads(packed_head)) if packed_head is not None else None
    except (ConfigError, TypeError, ValueError, RecursionError):
        return None


def _buckets(client: RedisClient, keys: ScopeKeys, head: SnapshotHead) -> list[bytes]:
    blobs: list[bytes] = []
    for first in range(0, head.n_buckets, _BUCKETS_AT_ONCE):
        names = map(str, range(first, min(first + _BUCKETS_AT_ONCE, head.n_buckets)))
        blobs += [blob or b"" for blob in client.execute("HMGET", keys.snapshot, *names)]
    return blobs
