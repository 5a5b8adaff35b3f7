"""What a level of draft nodes costs on this machine, by its number of rows: learned from those that were drafted."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["LevelSeconds"]

_MEMORY: Final = 1 / 8
"""Weight of the newest level in an average."""


class LevelSeconds:
    """Averages by powers of two of rows; what nobody drafted yet costs as much a row as the nearest known size.

    For smaller levels that is too little, so that they are tried.
    """

    def __init__(self) -> None:
        self._averages: dict[int, float] = {}

    def observe(self, n_rows: int, seconds: float) -> None:
        """Learn from a level."""
        size = n_rows.bit_length()
        average = self._averages.get(size, seconds)
        self._averages[size] = average + _MEMORY * (seconds - average)

    def estimate(self, n_rows: int) -> NDArray[np.float64]:
        """Return `[n_rows + 1]` seconds of levels of 0, 1, ... rows; nothing is known to cost anything at first."""
        costs = [self._of(size) for size in range(n_rows.bit_length() + 1)]
        return np.array([0.0, *(costs[n.bit_length()] for n in range(1, n_rows + 1))])

    def _of(self, size: int) -> float:
        if not self._averages:
            return 0.0
        nearest = min(self._averages, key=lambda known: (abs(known - size), known))
        return self._averages[nearest] * 2.0 ** (size - nearest)
