"""How likely draft nodes are accepted, by their kind: priors corrected online by what was verified.

Each kind has a rate of its own, and each group of kinds a factor that corrects all its priors at once, so that a drafter that
does worse (or better) than its priors on a text is seen through after a few nodes, long before every kind was met.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.records import IntArray

__all__ = ["Calibration"]

_PRIOR_WEIGHT: Final = 32.0
"""Trials that a corrected prior counts for against a kind's own."""
_GROUP_WEIGHT: Final = 4.0
"""Expected acceptances that a group's prior counts for."""
_KIND_MEMORY: Final = 512.0
_GROUP_MEMORY: Final = 512.0
"""Trials after which older ones count half."""
_HIGHEST: Final = 0.995


class Calibration:
    """Acceptance rates by kind.

    Args:
        priors: `[groups, kinds of a group]`, or `[kinds]` of a single group; between 0 and 1.
    """

    def __init__(self, priors: NDArray[np.float64]) -> None:
        priors = np.atleast_2d(np.asarray(priors, np.float64))
        self._priors = np.clip(priors, 1e-4, _HIGHEST)
        self._tried = np.zeros(priors.size)
        self._accepted = np.zeros(priors.size)
        self._group_tried = np.zeros(len(priors))
        self._group_accepted = np.zeros(len(priors))
        self._group_expected = np.zeros(len(priors))
        self._rates: NDArray[np.float64] | None = None

    @property
    def rates(self) -> NDArray[np.float64]:
        """`[kinds]` probability that a node is accepted once its parent is."""
        if self._rates is None:
            factor = (self._group_accepted + _GROUP_WEIGHT) / (self._group_expected + _GROUP_WEIGHT)
            prior = np.minimum(self._priors * factor[:, None], _HIGHEST).ravel()
            self._rates = (self._accepted + _PRIOR_WEIGHT * prior) / (self._tried + _PRIOR_WEIGHT)
        return self._rates

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from verified trees: the children of nodes on the accepted path were judged, no others."""
        judged = [
            _judged(step.tree.parent, step.tree.kind, step.accepted, len(step.committed))
            for step in steps
            if step.tree.n_nodes > 1
        ]
        if judged:
            kinds, is_accepted = (np.concatenate(column) for column in zip(*judged, strict=True))
            self._add(kinds, is_accepted)
            self._rates = None

    def _add(self, kinds: IntArray, is_accepted: NDArray[np.float64]) -> None:
        np.add.at(self._tried, kinds, 1.0)
        np.add.at(self._accepted, kinds, is_accepted)
        groups = kinds // self._priors.shape[1]
        np.add.at(self._group_tried, groups, 1.0)
        np.add.at(self._group_accepted, groups, is_accepted)
        np.add.at(self._group_expected, groups, self._priors.ravel()[kinds])
        _fade(self._tried, _KIND_MEMORY, self._accepted, self._tried)
        _fade(self._group_tried, _GROUP_MEMORY, self._group_accepted, self._group_expected, self._group_tried)


def _fade(tried: NDArray[np.float64], memory: float, *counts: NDArray[np.float64]) -> None:
    is_old = tried > memory
    if is_old.any():
        for count in counts:
            count[is_old] *= 0.5


@numba.njit(cache=True)
def _judged(
    parent: IntArray, kind: IntArray, accepted: IntArray, n_committed: int
) -> tuple[IntArray, NDArray[np.float64]]:
    """Return the kinds of the judged nodes, and 1 for those that were accepted, else 0.

    Behind a cut nothing was judged: a path of `n` accepted nodes was judged on `n + 1` levels only if `n + 1` tokens came.
    """
    on_path = np.zeros(len(parent), np.bool_)
    on_path[0] = True
    is_judge = on_path.copy()
    for i in range(len(accepted)):
        on_path[accepted[i]] = True
        is_judge[accepted[i]] = i + 1 < n_committed
    kinds, is_accepted = np.empty(len(parent), np.int32), np.empty(len(parent), np.float64)
    n = 0
    for node in range(1, len(parent)):
        if is_judge[parent[node]]:
            kinds[n], is_accepted[n] = kind[node], 1.0 if on_path[node] else 0.0
            n += 1
    return kinds[:n], is_accepted[:n]
