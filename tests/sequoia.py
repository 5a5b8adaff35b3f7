"""The oracle for static trees: the dynamic program of Sequoia, arXiv 2402.12374, section 4.1."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np


def sequoia(acceptance: Sequence[float], n_nodes: int, max_depth: int) -> float:
    """Expected acceptance length of the best tree with at most `n_nodes` nodes below the root, root included.

    The vector need not fall: a child of rank `b` always comes with those of lower rank.
    """

    @cache
    def best(m: int, depth: int, n_children: int) -> float:
        """`F`: the best tree of exactly `m` nodes whose root has `n_children` children."""
        if n_children == 0:
            return 1.0 if m == 1 else -np.inf
        if depth == 0:
            return -np.inf
        sizes = range(1, m)
        rate = acceptance[n_children - 1]
        return max((best(m - n, depth, n_children - 1) + rate * any_root(n, depth - 1) for n in sizes), default=-np.inf)

    @cache
    def any_root(m: int, depth: int) -> float:
        """`G`."""
        return max(best(m, depth, n_children) for n_children in range(len(acceptance) + 1))

    return max(any_root(m, max_depth) for m in range(1, n_nodes + 2))
