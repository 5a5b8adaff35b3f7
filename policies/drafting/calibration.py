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
from tts_orch.policies.drafting.joined_steps import JoinedSteps, join_steps
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
        self._priors = np.clip(np.atleast_2d(np.asarray(priors, np.float64)), 1e-4, _HIGHEST)
        shape = self._priors.shape
        self._kinds = np.zeros((2, *shape))  # tried, accepted
        self._groups = np.zeros((3, shape[0]))  # tried, accepted, expected by the priors
        self._rates = self._priors.copy()

    @property
    def rates(self) -> NDArray[np.float64]:
        """`[kinds]` probability that a node is accepted once its parent is."""
        return self._rates.ravel()

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from verified trees: the children of nodes on the accepted path were judged, no others."""
        if any(len(step.tree.token) > 1 for step in steps):
            judged = _judged(join_steps(steps))
            _learn(self._priors, self._kinds, self._groups, self._rates, *judged)


@numba.njit(cache=True)
def _learn(
    priors: NDArray[np.float64],
    kinds: NDArray[np.float64],
    groups: NDArray[np.float64],
    rates: NDArray[np.float64],
    judged: IntArray,
    is_accepted: NDArray[np.float64],
) -> None:
    """Count judged nodes, let old counts fade, and correct the rates of their groups."""
    n_members = priors.shape[1]
    for i in range(len(judged)):
        group, member = judged[i] // n_members, judged[i] % n_members
        kinds[0, group, member] += 1.0
        kinds[1, group, member] += is_accepted[i]
        groups[0, group] += 1.0
        groups[1, group] += is_accepted[i]
        groups[2, group] += priors[group, member]
        if kinds[0, group, member] > _KIND_MEMORY:
            kinds[:, group, member] *= 0.5
        if groups[0, group] > _GROUP_MEMORY:
            groups[:, group] *= 0.5
    for i in range(len(judged)):
        group = judged[i] // n_members
        factor = (groups[1, group] + _GROUP_WEIGHT) / (groups[2, group] + _GROUP_WEIGHT)
        for member in range(n_members):
            prior = min(priors[group, member] * factor, _HIGHEST)
            tried, accepted = kinds[0, group, member], kinds[1, group, member]
            rates[group, member] = (accepted + _PRIOR_WEIGHT * prior) / (tried + _PRIOR_WEIGHT)


@numba.njit(cache=True)
def _judged(steps: JoinedSteps) -> tuple[IntArray, NDArray[np.float64]]:
    """Return the kinds of the judged nodes, and 1 for those that were accepted, else 0.

    Behind a cut nothing was judged: a path of `n` accepted nodes was judged on `n + 1` levels only if `n + 1` tokens came.
    """
    token, parent, kind, n_nodes, path, n_accepted, _, n_committed = steps
    is_judge, is_accepted = np.zeros(len(token), np.bool_), np.zeros(len(token), np.bool_)
    kinds, outcomes, n = np.empty(len(token), np.int32), np.empty(len(token), np.float64), 0
    first, first_path = 0, 0
    for step in range(len(n_nodes)):
        is_judge[first] = True
        for i in range(n_accepted[step]):
            node = first + path[first_path + i]
            is_accepted[node], is_judge[node] = True, i + 1 < n_committed[step]
        for node in range(first + 1, first + n_nodes[step]):
            if is_judge[first + parent[node]]:
                kinds[n], outcomes[n] = kind[node], 1.0 if is_accepted[node] else 0.0
                n += 1
        first += n_nodes[step]
        first_path += n_accepted[step]
    return kinds[:n], outcomes[:n]
