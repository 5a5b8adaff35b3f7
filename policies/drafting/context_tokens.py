"""From keys of contexts back to their tokens, for people who want to see what a table knows."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS, ContextDelta

__all__ = ["ContextTokens"]

_GOLDEN: Final = 0x9E3779B97F4A7C15
_MASK: Final = (1 << 64) - 1
_FACTORS: Final = ((0x94D049BB133111EB, 31), (0xBF58476D1CE4E5B9, 27), (1, 30))
"""Factors and shifts of SplitMix64, last first."""


class ContextTokens:
    """Finds the tokens of the contexts of one scope.

    A key says with which shorter context and which token it was made, once the shorter one is guessed; all of them are
    tried. Whatever has a context has the shorter ones too, unless they were forgotten.

    Args:
        contexts: of the scope.
        vocabulary_size: token ids are below it; the smaller, the surer.
    """

    def __init__(self, contexts: ContextDelta, vocabulary_size: int = 1 << 31) -> None:
        self._keys = {order: contexts.key[contexts.order == order] for order in range(1, ORDERS)}
        self._vocabulary_size = vocabulary_size

    def find(self, key: int, order: int) -> tuple[int, ...] | None:
        """Return the tokens of a context in reading order, None where a shorter context is not known."""
        tokens: list[int] = []
        for length in range(order, 0, -1):
            shorter = self._keys[length - 1] if length > 1 else np.zeros(1, np.uint64)
            found = self._last_step(key, length, shorter)
            if found is None:
                return None
            key, token = found
            tokens.append(token)
        return tuple(tokens)

    def _last_step(self, key: int, order: int, shorter: NDArray[np.uint64]) -> tuple[int, int] | None:
        """Return which of the shorter keys the key was made from, and with which token."""
        mixed = shorter ^ np.uint64(_unmix(key))
        token = mixed >> np.uint64(3)
        fits = ((mixed & np.uint64(7)) == np.uint64(order)) & (token < np.uint64(self._vocabulary_size))
        places = np.flatnonzero(fits)
        return (int(shorter[places[0]]), int(token[places[0]])) if len(places) else None


def _unmix(key: int) -> int:
    """Undo SplitMix64's output function."""
    for factor, shift in _FACTORS:
        key = _unshift(key, shift) * pow(factor, -1, 1 << 64) & _MASK
    return key - _GOLDEN & _MASK


def _unshift(value: int, shift: int) -> int:
    """Return the x whose `x ^ (x >> shift)` is the value."""
    found = value
    for _ in range(64 // shift):
        found = value ^ (found >> shift)
    return found
