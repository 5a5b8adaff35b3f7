"""How confident a target was over the tokens of one candidate, window by window.

A token's confidence is minus the mean log-probability of the 20 most probable tokens at its position, under the raw law:
at least log 20, and larger where the law is more peaked.

Source: DeepConf, arXiv 2508.15260, section 3.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["WindowConfidence", "group_confidences", "window_confidence"]


class WindowConfidence(NamedTuple):
    """A candidate's confidence in windows of its tokens.

    Attributes:
        tail: mean over the last window.
        bottom: mean of the lowest tenth of all windows.
        lowest: the lowest window.
    """

    tail: float
    bottom: float
    lowest: float


def group_confidences(confidences: ArrayLike, window: int) -> NDArray[np.float64]:
    """Return the mean confidence of every full window, in order; fewer tokens than a window are one group.

    Args:
        confidences: `[n]` token confidences, at least one.
        window: tokens a group.

    Returns:
        `[max(n - window, 0) + 1]`
    """
    sums = np.cumsum(np.concatenate([[0.0], np.asarray(confidences, np.float64)]))
    width = min(window, len(sums) - 1)
    means: NDArray[np.float64] = (sums[width:] - sums[:-width]) / width
    return means


def window_confidence(confidences: ArrayLike, window: int) -> WindowConfidence:
    """Sum a candidate's token confidences up, in float64; all 0 without a token."""
    if not np.size(confidences):
        return WindowConfidence(0.0, 0.0, 0.0)
    groups = group_confidences(confidences, window)
    lowest = np.sort(groups)[: max(len(groups) // 10, 1)]
    return WindowConfidence(tail=float(groups[-1]), bottom=float(lowest.mean()), lowest=float(lowest[0]))
