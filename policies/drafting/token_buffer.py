"""The committed tokens of one trajectory, growing in place."""

from __future__ import annotations

import numpy as np

from tts_orch.records import IntArray

__all__ = ["TokenBuffer"]


class TokenBuffer:
    """An `int32` array that doubles when it is full."""

    def __init__(self, token_ids: IntArray) -> None:
        self._length = len(token_ids)
        self._array = np.empty(max(256, 2 * self._length), np.int32)
        self._array[: self._length] = token_ids

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> IntArray:
        """A view `[n]` of all tokens, valid until the next append."""
        return self._array[: self._length]

    def append(self, token_ids: IntArray) -> None:
        """Add tokens at the end."""
        length = self._length + len(token_ids)
        if length > len(self._array):
            self._array = np.resize(self._array, 2 * length)
        self._array[self._length : length] = token_ids
        self._length = length
