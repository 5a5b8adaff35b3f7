"""Axes: where on the paper a value lies, and which values have a tick."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["SHARE", "Axis", "Spacing", "axis_over"]

Spacing: TypeAlias = Literal["linear", "log", "binary"]
"""Equal steps, equal ratios with ticks at 1, 2 and 5, or equal ratios with ticks at powers of two."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a chart.

    Attributes:
        title: what it measures.
        low: value at its start; positive unless the spacing is linear.
        high: value at its end, above `low`.
        spacing: how values are spread over it.
        write: the text of a tick.
    """

    title: str
    low: float
    high: float
    spacing: Spacing = "linear"
    write: Callable[[float], str] = "{:g}".format

    def place(self, value: float) -> float:
        """Return where a value lies, 0 at the start of the axis and 1 at its end."""
        if self.spacing == "linear":
            return (value - self.low) / (self.high - self.low)
        return math.log(value / self.low) / math.log(self.high / self.low)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round values on the axis, at most so many; more where a logarithmic axis spans many decades."""
        if self.spacing == "linear":
            return _linear_ticks(self.low, self.high, most)
        if self.spacing == "binary":
            exponents = range(math.ceil(math.log2(self.low)), math.floor(math.log2(self.high)) + 1)
            return [2.0**exponent for exponent in exponents]
        return _log_ticks(self.low, self.high, most)


SHARE: Final = Axis("share of problems", 0.0, 1.0, write="{:.0%}".format)
"""The axis of all shares of problems."""


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / (most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)):
        found = [factor * 10.0**decade for decade in decades for factor in factors]
        ticks = [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]
        if len(ticks) <= most:
            break
    return ticks


def axis_over(
    title: str, values: Iterable[float], spacing: Spacing, write: Callable[[float], str] | None = None
) -> Axis:
    """Return an axis that shows all values with some room at both ends.

    Args:
        title: what it measures.
        values: at least one; for other spacings than linear only the positive ones count.
        spacing: how values are spread over it.
        write: the text of a tick.
    """
    known = [value for value in values if spacing == "linear" or value > 0] or [1.0]
    low, high = min(known), max(known)
    if spacing == "linear":
        room = max(0.06 * (high - low), 0.05 * abs(high), 0.5)  # wide enough for ticks that are written apart
        low, high = low - room, high + room
    else:
        room = (high / low) ** 0.06 if high > low else 1.5
        low, high = low / room, high * room
    return Axis(title, low, high, spacing, write or "{:g}".format)
