"""What a forward pass of so many rows costs on this device: measured at start-up, corrected while decoding.

The curve decides how many draft nodes pay. It changes the speed only, never a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["CostModel"]

_KNOTS = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)
_LEARNING_RATE = 0.05


class CostModel:
    """Seconds a pass by its number of rows, piecewise linear and never decreasing.

    Args:
        seconds: `[len(knots)]` measured at the knots.
        knots: row counts, ascending.
    """

    def __init__(self, seconds: Sequence[float], knots: Sequence[int] = _KNOTS) -> None:
        self._knots = np.array(knots, np.float64)
        self._seconds = np.array(seconds, np.float64)

    @classmethod
    def measure(cls, run: Callable[[int], float], max_rows: int, repeats: int = 3) -> CostModel:
        """Time passes of growing size; `run(n_rows)` makes one and returns its seconds.

        The fastest of each size counts: slower ones measure what else the machine does.
        """
        knots = [n for n in _KNOTS if n < max_rows] + [max_rows]
        run(knots[-1])  # first use compiles and allocates
        return cls([min(run(n) for _ in range(repeats)) for n in knots], knots)

    def seconds(self, rows: float | np.ndarray) -> np.ndarray:
        """Return the expected seconds of passes with `rows` rows; the last slope goes on beyond the last knot."""
        rows = np.asarray(rows, np.float64)
        curve = np.maximum.accumulate(self._seconds)
        inside = np.interp(rows, self._knots, curve)
        if len(curve) == 1:
            return np.asarray(curve[0] * np.maximum(1.0, rows / self._knots[0]))
        slope = (curve[-1] - curve[-2]) / (self._knots[-1] - self._knots[-2])
        return np.asarray(inside + np.maximum(0.0, rows - self._knots[-1]) * slope)

    def observe(self, rows: int, seconds: float) -> None:
        """Move the curve around `rows` a little towards a real pass: contexts grow and machines get busy."""
        error = np.clip(seconds / float(self.seconds(rows)), 0.25, 4.0) - 1.0
        nearness = np.maximum(0.0, 1.0 - np.abs(np.log2(self._knots / max(rows, 1))))
        self._seconds *= 1.0 + _LEARNING_RATE * error * nearness

    def table(self) -> list[tuple[int, float]]:
        """Return (rows, seconds) at the knots, for reports."""
        return [(int(n), float(s)) for n, s in zip(self._knots, np.maximum.accumulate(self._seconds), strict=True)]
