"""Keys and values of prefixes that a reward model has read, kept as long as there is room."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from tts_orch.rewards.segments import Segment

__all__ = ["KeptSegment", "PrefixMemory", "prefix_keys"]


@dataclass(frozen=True, slots=True)
class KeptSegment:
    """What was computed for one segment behind its prefix.

    Attributes:
        layers: keys and values `[2, heads, n, head_dim]` of its tokens, one tensor a layer.
        score: taken at its end, None where none was.
        top: `[hidden]` output of the last layer at its last token, where somebody wants it.
        likelihood: `[N_LIKELIHOODS]` how likely it is, where somebody wants it.
    """

    layers: tuple[torch.Tensor, ...]
    score: float | None
    top: torch.Tensor | None = None
    likelihood: torch.Tensor | None = None

    @property
    def n_tokens(self) -> int:
        """Tokens of the segment."""
        return int(self.layers[0].shape[2])

    @property
    def n_bytes(self) -> int:
        """Memory of all that is kept."""
        others = (self.top, self.likelihood)
        return sum(kept.nbytes for kept in (*self.layers, *others) if kept is not None)


def prefix_keys(segments: Sequence[Segment]) -> list[bytes]:
    """Return a digest for each segment, of it and all before it."""
    keys, key = [], b""
    for segment in segments:
        digest = hashlib.blake2b(key, digest_size=16)
        for token_ids in (segment.token_ids, segment.tail):
            digest.update(len(token_ids).to_bytes(8, "little") + np.asarray(token_ids, np.int64).tobytes())
        key = digest.digest()
        keys.append(key)
    return keys


class PrefixMemory:
    """Segments by the digest of their prefix; each token once, however many solutions share it.

    The least recently used go first. A segment counts as used later than those behind it, so what is left is always
    reachable from the start.

    Args:
        capacity_bytes: room for keys and values.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._kept: OrderedDict[bytes, KeptSegment] = OrderedDict()
        self._n_bytes = 0

    @property
    def n_bytes(self) -> int:
        """Memory in use."""
        return self._n_bytes

    def find(self, keys: Sequence[bytes]) -> list[KeptSegment]:
        """Return the segments that are kept, from the first one to the first gap."""
        found = []
        for key in keys:
            if key not in self._kept:
                break
            found.append(self._kept[key])
        self._touch(keys[: len(found)])
        return found

    def keep(self, keys: Sequence[bytes], segments: Sequence[KeptSegment]) -> None:
        """Keep the last of a chain's segments, as far as there is room.

        Args:
            keys: of the whole chain.
            segments: its last ones.
        """
        for key, segment in zip(keys[len(keys) - len(segments) :], segments, strict=True):
            if key not in self._kept:
                self._kept[key] = segment
                self._n_bytes += segment.n_bytes
        self._touch(keys)
        while self._n_bytes > self._capacity_bytes:
            self._n_bytes -= self._kept.popitem(last=False)[1].n_bytes

    def _touch(self, keys: Sequence[bytes]) -> None:
        for key in reversed(keys):
            if key in self._kept:
                self._kept.move_to_end(key)
