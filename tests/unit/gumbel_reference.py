"""Gumbel-Top-K in NumPy: what the compiled growth of draft trees is held to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def gumbel_top_k(log_q: NDArray[np.floating], noise: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """Draw up to `k` candidates without replacement: indices of the largest `log_q + noise`, largest first.

    Ties go to the lowest index; candidates of probability 0 are never drawn.

    Source: arXiv 1903.06059, section 2.3.
    """
    keys = log_q + noise
    order = np.argsort(-keys, kind="stable")[:k]
    return order[keys[order] > -np.inf]
