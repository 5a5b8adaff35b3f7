"""Ratios of paired measurements with a bootstrap interval, and the band that the same thing measured twice gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ["RatioInterval", "is_slower", "ratio_interval"]

_DRAWS = 4000


class RatioInterval(NamedTuple):
    """The median ratio over pairs with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def ratio_interval(numerators: Sequence[float], denominators: Sequence[float]) -> RatioInterval:
    """Return the median of the ratios of pairs, resampled over pairs with a fixed seed.

    Raises:
        ValueError: no pairs, or not as many of one as of the other.
    """
    if not numerators or len(numerators) != len(denominators):
        raise ValueError(
            f"{len(numerators)} against {len(denominators)} measurements; give the same number, at least 1"
        )
    ratios = np.array(numerators, np.float64) / np.array(denominators, np.float64)
    draws = np.random.default_rng(0).choice(ratios, (_DRAWS, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return RatioInterval(float(np.median(ratios)), float(low), float(high))


def is_slower(ratio: RatioInterval, band: RatioInterval) -> bool:
    """Whether a ratio of speeds is below 1 by more than chance: all of its interval is below all of the A/A band.

    Args:
        ratio: the speed in question against the reference.
        band: the reference against itself.
    """
    return ratio.high < min(1.0, band.low)
