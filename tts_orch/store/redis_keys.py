"""What a scope is in Redis: keys of one schema version that a person can read, all in one slot of a cluster.

    tts:1:{scope}:log       stream of entries w, s, d: writer, its sequence number, a packed delta
    tts:1:{scope}:writers   hash from each writer to its last sequence number in the log, written with the log in one step
    tts:1:{scope}:snapshot  hash: `head`, what is folded in it, and `0`, `1`, ..., packed buckets of contexts; replaced as a
                            whole, and lost as a whole where keys are evicted
    tts:1:{scope}:snapshot:<generation>  the next snapshot until it takes that place
    tts:1:{scope}:lease     who may fold the log

The log is trimmed up to the entry that the snapshot before the current one ends with; that entry stays, so whoever has read
up to it can tell that nothing behind it is missing.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

__all__ = ["ALL_KEYS", "ALL_LOGS", "SCHEMA_VERSION", "ScopeKeys", "entry_number", "stream_id"]

SCHEMA_VERSION: Final = 1
"""Version of everything above; programs of another one see none of it."""
_PREFIX: Final = f"tts:{SCHEMA_VERSION}:"
ALL_KEYS: Final = f"{_PREFIX}{{*}}:*"
"""Pattern of the keys of all scopes, for SCAN."""
ALL_LOGS: Final = f"{_PREFIX}{{*}}:log"
"""Pattern of the logs of all scopes, for SCAN."""
_TAG_SAFE: Final = '/[]":, '  # a scope stays readable; braces, stars and the like are escaped
_SERIAL_BITS: Final = 64


class ScopeKeys:
    """Keys of one scope. The braces make it the hash tag: a cluster keeps the keys together."""

    __slots__ = ("_stem", "lease", "log", "scope", "snapshot", "writers")

    def __init__(self, scope: str) -> None:
        self.scope = scope
        self._stem = f"{_PREFIX}{{{quote(scope, safe=_TAG_SAFE)}}}:"
        self.log = f"{self._stem}log"
        self.writers = f"{self._stem}writers"
        self.snapshot = f"{self._stem}snapshot"
        self.lease = f"{self._stem}lease"

    @classmethod
    def of(cls, key: bytes) -> ScopeKeys:
        """Return the keys of the scope that any one of them belongs to."""
        tag = key.decode(errors="replace").removeprefix(_PREFIX)
        return cls(unquote(tag[1 : tag.rindex("}")]))

    def next_snapshot(self, generation: str) -> str:
        """Return the key of a snapshot that is being written."""
        return f"{self.snapshot}:{generation}"

    @property
    def pattern(self) -> str:
        """Pattern of all keys of the scope, for SCAN."""
        return self._stem.translate({ord(c): f"\\{c}" for c in "[]*?\\"}) + "*"


def entry_number(stream_id: bytes) -> int:
    """Return the id of a stream's entry, `milliseconds-serial`, as one number of the same order."""
    milliseconds, _, serial = stream_id.partition(b"-")
    return int(milliseconds) << _SERIAL_BITS | int(serial or 0)


def stream_id(number: int) -> str:
    """Return the id of a stream's entry from its number."""
    return f"{number >> _SERIAL_BITS}-{number & ((1 << _SERIAL_BITS) - 1)}"
