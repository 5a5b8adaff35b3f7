"""How many draft nodes a trajectory may have: the simple rule.

All trajectories get the same number `N`, the one that maximises expected committed tokens a second,
`tau(N) / Tv(B * (1 + filled(N)))`. `tau(N)` is one plus the acceptance of the first N slots of the static tree, learned
online; what a slot is worth before it was ever tried is a prior scaled by how the tried ones fared. From time to time a
larger tree is tried so that a pessimistic estimate can recover.

Source: the criterion of Sequoia, arXiv 2402.12374 section 4.2, with measured acceptance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["DraftSize"]

_PRIOR_WEIGHT = 16
"""Observations that the prior counts for."""
_MEMORY = 2048
"""Observations after which an old one has faded to 1/e."""
_PROBE_EVERY = 64


class DraftSize:
    """Learns what the n-th node of a tree is worth and chooses the draft size.

    Args:
        prior: `[max_nodes]` expected acceptance probability of each node in the order in which trees grow.
    """

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = np.asarray(prior, np.float64)
        self._accepted = self._prior.copy()
        self._filled = np.ones(len(prior))
        self._tried = np.zeros(len(prior), np.int64)
        self._steps = 0

    @property
    def max_nodes(self) -> int:
        """The largest size it can choose."""
        return len(self._prior)

    def acceptance(self) -> NDArray[np.float64]:
        """Return `[max_nodes]` the estimated acceptance probability of each node, missing nodes counted as rejected."""
        weight = self._tried / (self._tried + _PRIOR_WEIGHT)
        expected = float((weight * self._prior).sum())
        fared = float((weight * self._accepted).sum()) / expected if expected > 0 else 1.0
        return np.where(self._tried > 0, self._accepted, self._prior * min(fared, 1.0))

    def choose(
        self, n_trajectories: int, other_rows: int, seconds: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> int:
        """Return the number of nodes each trajectory may have in the next verify step.

        Args:
            n_trajectories: how many decode in it.
            other_rows: rows of prefill in the same pass.
            seconds: cost of passes by their rows.
        """
        self._steps += 1
        tau = np.concatenate([[1.0], 1.0 + np.cumsum(self.acceptance())])
        filled = np.concatenate([[0.0], np.cumsum(self._filled)])
        best = int(np.argmax(tau / seconds(other_rows + n_trajectories * (1.0 + filled))))
        if self._steps % _PROBE_EVERY == 0:
            return min(self.max_nodes, 2 * best + 1)
        return best

    def observe(self, asked: int, n_drafted: int, accepted: Sequence[int]) -> None:
        """Learn from one trajectory's verify step.

        Args:
            asked: nodes it was allowed.
            n_drafted: nodes its tree had.
            accepted: indices of the accepted ones, 1 for the first node below the root.
        """
        was_accepted, was_filled = np.zeros(asked), np.zeros(asked)
        was_filled[:n_drafted] = 1.0
        was_accepted[[node - 1 for node in accepted]] = 1.0
        rate = 1.0 / np.minimum(self._tried[:asked] + _PRIOR_WEIGHT, _MEMORY)
        self._accepted[:asked] += rate * (was_accepted - self._accepted[:asked])
        self._filled[:asked] += rate * (was_filled - self._filled[:asked])
        self._tried[:asked] += 1
