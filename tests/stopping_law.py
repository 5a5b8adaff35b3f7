"""What early-stopping self-consistency (arXiv 2401.10480) draws in the mean, to hold draws against."""

from __future__ import annotations

from collections.abc import Sequence


def expected_samples(shares: Sequence[float], window: int, n: int) -> float:
    """Return how many of n candidates are drawn in the mean before a window agrees.

    Args:
        shares: probability of each answer; what is missing to 1 abstains.
        window: candidates that must agree.
        n: most candidates that are drawn.
    """
    goes_on = 1.0 - sum(share**window for share in shares)
    return sum(min(window, n - start) * goes_on ** (start // window) for start in range(0, n, window))
