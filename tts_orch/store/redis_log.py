"""`RedisLog`, draft statistics in Redis or Valkey: a stream of packed deltas for each scope, folded into snapshots in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.store.base import LogEntry, LogRead, Snapshot
from tts_orch.store.redis_client import RedisClient, Script
from tts_orch.store.redis_keys import ScopeKeys, entry_number, stream_id
from tts_orch.store.redis_snapshots import goes_on, read_snapshot
from tts_orch.store_address import StoreAddress

__all__ = ["RedisLog", "RedisLogOpener"]

_READ_ENTRIES: Final = 32  # of some 4096 contexts each: more at once would be slower to add up, and take more memory
_SEQUENCE_DIGITS: Final = 15  # what Lua counts exactly

# A log that is gone while its writers are known was evicted: they are forgotten too, and send again what they have.
# Values of another type are not ours and make room; nothing else is written before the server has looked at its memory.
_APPEND: Final = Script("""
local writer, sequence, previous, ttl_ms = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[5])
local kind = redis.call('TYPE', KEYS[1]).ok
local known = kind == 'stream' and redis.pcall('HGET', KEYS[2], writer)
local last = type(known) == 'string' and tonumber(known) or -1
if last < previous or last >= sequence then return last end
if kind ~= 'stream' and kind ~= 'none' then redis.call('UNLINK', KEYS[1]) end
redis.call('XADD', KEYS[1], '*', 'w', writer, 's', ARGV[2], 'd', ARGV[4])
if kind ~= 'stream' or type(known) == 'table' then redis.call('UNLINK', KEYS[2]) end
redis.call('HSET', KEYS[2], writer, ARGV[2])
if ttl_ms > 0 then
    redis.call('PEXPIRE', KEYS[1], ttl_ms)
    redis.call('PEXPIRE', KEYS[2], ttl_ms)
end
return sequence
""")

_READ: Final = Script("""
local entries = redis.pcall('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])
return entries.err and {} or entries
""")


class RedisLog:
    """A `StatisticsLog` in Redis; each process makes its own.

    Args:
        client: of the server.
        ttl_s: seconds after which a scope that nobody adds to is dropped; 0 keeps it.
    """

    def __init__(self, client: RedisClient, ttl_s: int) -> None:
        self._client = client
        self._ttl_ms = 1000 * ttl_s

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        """Add a batch and take note of its number in one step."""
        keys = ScopeKeys(scope)
        arguments = (writer, sequence, previous, blob, self._ttl_ms)
        return int(self._client.run(_APPEND, (keys.log, keys.writers), arguments))

    def read(self, scope: str, after_id: int) -> LogRead:
        """Return entries after an id, a few dozen at most."""
        keys = ScopeKeys(scope)
        found = self._client.run(_READ, (keys.log,), (f"({stream_id(after_id)}", _READ_ENTRIES))
        # Asked last: where the log still has the entry before, nothing was missing from the answer.
        if (found or after_id) and not goes_on(self._client, keys, after_id):
            return LogRead((), after_id, has_gap=True)
        entries = [_entry(entry_id, fields) for entry_id, fields in found]
        sound = [entry for entry in entries if entry is not None]
        last_id = entry_number(found[-1][0]) if found else after_id
        return LogRead(sound, last_id, n_rejected=len(entries) - len(sound))

    def snapshot(self, scope: str) -> Snapshot:
        """Return the folded beginning of a scope's log, an empty one if nothing was folded."""
        return read_snapshot(self._client, ScopeKeys(scope))


@dataclass(frozen=True, slots=True)
class RedisLogOpener:
    """Opens a `RedisLog` in whichever process calls it; a connection could not be sent there."""

    address: StoreAddress
    ttl_s: int

    def __call__(self) -> RedisLog:
        """Return a log; the connection is made when it is first used."""
        return RedisLog(RedisClient(self.address, "replica"), self.ttl_s)


def _entry(entry_id: bytes, fields: Sequence[bytes]) -> LogEntry | None:
    """Return an entry, None for what `RedisLog` has not written; what is in the blob is checked by whoever unpacks it."""
    values = dict(zip(fields[::2], fields[1::2], strict=True))
    writer, sequence, blob = (values.get(name, b"") for name in (b"w", b"s", b"d"))
    if not (sequence.isdigit() and len(sequence) <= _SEQUENCE_DIGITS and writer and writer.isascii()):
        return None
    return LogEntry(entry_number(entry_id), writer.decode(), int(sequence), blob)
