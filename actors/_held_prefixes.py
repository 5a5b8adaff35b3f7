"""Which prefixes a verifier has keys and values of, as far as a controller can know."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from typing import Final

from tts_orch.records import IntArray

__all__ = ["HeldPrefixes", "prefix_digest"]

_REMEMBERED: Final = 4096  # more than the memory for keys and values has room for


def prefix_digest(problem_id: str, token_ids: IntArray) -> bytes:
    """Return what names a prefix of a problem."""
    return hashlib.blake2b(problem_id.encode() + b"\0" + token_ids.tobytes(), digest_size=16).digest()


class HeldPrefixes:
    """The prefixes that were computed last."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._digests

    def add(self, digest: bytes) -> None:
        """Remember a prefix, and forget the oldest one if there are too many."""
        self._digests[digest] = None
        self._digests.move_to_end(digest)
        if len(self._digests) > _REMEMBERED:
            self._digests.popitem(last=False)
