"""A lease on the right to fold a scope's log: one holder at a time, who loses it when nothing is heard of it."""

from __future__ import annotations

import uuid
from typing import Final

from tts_orch.store.redis_client import RedisClient, Script

__all__ = ["Lease"]

_RENEW: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
""")

_RELEASE: Final = Script("""
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""")


class Lease:
    """A key with a token in it; work that others must not do at the same time ends with a check of the token.

    Args:
        client: of the server.
        key: of the lease.
        duration_ms: milliseconds until it ends, unless it is renewed.

    Attributes:
        token: what stands in the key while the lease is ours.
    """

    def __init__(self, client: RedisClient, key: str, duration_ms: int) -> None:
        self._client = client
        self._key = key
        self._duration_ms = duration_ms
        self.token = uuid.uuid4().hex

    def take(self) -> bool:
        """Return whether it is ours now; somebody else may have it."""
        taken = self._client.execute("SET", self._key, self.token, "NX", "PX", self._duration_ms)
        return bool(taken) or self.renew()  # an order that was sent twice finds what it has done

    def renew(self) -> bool:
        """Begin its time anew; return whether it was still ours."""
        return bool(self._client.run(_RENEW, [self._key], [self.token, self._duration_ms]))

    def release(self) -> None:
        """End it, if it is still ours."""
        self._client.run(_RELEASE, [self._key], [self.token])
