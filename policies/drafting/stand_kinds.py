"""Kinds of STAND's draft nodes: what is known of a slot that tells how likely it gets accepted.

A kind is (mode, order that hit, observations of the context, draw rank, probability, gap). The gap compares what draws were
decided by: under keyed verification the noisy log-probability of the node against the best of its siblings, since a clear
winner stays the winner under the target's own, slightly different law; for greedy drafts the same without noise. A rejection
draft must not be judged by what was drawn, so there the gap is that between the two largest probabilities of the law.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS

__all__ = ["DETERMINISTIC", "GREEDY", "KEYED", "REJECTION", "kind_of", "kind_priors"]

KEYED: Final = 0
GREEDY: Final = 1
REJECTION: Final = 2
DETERMINISTIC: Final = 3
"""How children are drawn; the last one takes the most probable candidates although the target samples."""

_MODES: Final = 4
_COUNTS: Final = 3
_RANKS: Final = 4
_PROBABILITIES: Final = 4
_GAPS: Final = 8
_GAP_EDGES: Final = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_GAP_MIDDLES: Final = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 8.0])


@numba.njit(cache=True)
def kind_of(mode: int, order: int, count: int, rank: int, probability: float, gap: float) -> int:
    """Return the number of a kind.

    Args:
        mode: how the node was drawn.
        order: tokens of the context that hit.
        count: observations of that context.
        rank: draw rank.
        probability: of the token under the draft law; under rejection the largest of the law.
        gap: how far the node leads its best sibling, or how far it is behind it.
    """
    count_bin = 0 if count < 2 else (1 if count < 4 else 2)
    gap_bin = 0
    while gap_bin < _GAPS - 1 and gap >= _GAP_EDGES[gap_bin]:
        gap_bin += 1
    probability_bin = min(int(probability * _PROBABILITIES), _PROBABILITIES - 1)
    group = ((mode * ORDERS + order - 1) * _COUNTS + count_bin) * _RANKS + min(rank, _RANKS - 1)
    return (group * _PROBABILITIES + probability_bin) * _GAPS + gap_bin


def kind_priors() -> NDArray[np.float64]:
    """Return acceptance rates to begin with, `[groups, kinds of a group]`; groups differ in mode, order, count and rank.

    The formulas were fitted to what SmolLM2-135M-Instruct accepted on reasoning, chat and code; they are corrected online.
    """
    shape = (_MODES, ORDERS, _COUNTS, _RANKS, _PROBABILITIES, _GAPS)
    priors = np.empty(shape)
    probability = (np.arange(_PROBABILITIES)[:, None] + 0.5) / _PROBABILITIES
    for order in range(ORDERS):
        sampled = _sampled(order, probability)
        by_probability = np.broadcast_to(probability * (0.55 + 0.1 * order), (_PROBABILITIES, _GAPS))
        for rank in range(_RANKS):
            priors[KEYED, order, :, rank] = sampled[rank]
            priors[GREEDY, order, :, rank] = sampled[rank]
            priors[REJECTION, order, :, rank] = (0.5 + 0.08 * order) * (0.3 + 0.7 * probability) * 0.35**rank
            priors[DETERMINISTIC, order, :, rank] = by_probability
    return priors.reshape(-1, _PROBABILITIES * _GAPS)


def _sampled(order: int, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `[ranks, probabilities, gaps]` for one order, 0 for contexts of one token."""
    offset = (-0.55, -0.75, -0.5, 0.1)[order]
    slope = (0.17, 0.35, 0.34, 0.42)[order]
    weight = (0.5, 0.3, 0.3, 0.48)[order]
    first = 1 / (1 + np.exp(-(offset + slope * _GAP_MIDDLES + weight * np.log(probability))))
    behind = (0.16, 0.22, 0.24, 0.3)[order] * np.exp(-(0.15, 0.27, 0.28, 0.42)[order] * _GAP_MIDDLES)
    later = [np.broadcast_to(behind * 0.6 ** (rank - 1), first.shape) for rank in range(1, _RANKS)]
    return np.stack([first, *later])
