"""Adaptive consistency: stop when more samples would hardly change which answer leads.

Source: arXiv 2305.11860.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.stopping_config import AdaptiveConsistency

__all__ = ["beta_confidence", "dirichlet_confidence", "is_settled"]

_NODES: Final = 256
_REACH: Final = 12.0  # standard deviations of the leading share's law that the integral covers


def is_settled(rule: AdaptiveConsistency, classes: Sequence[int | None]) -> bool:
    """Whether the leading answer class leads for good, with the probability that the rule asks for.

    Args:
        rule: settings.
        classes: answer class of each candidate, None for an abstention, which never votes.
    """
    counts = sorted(Counter(number for number in classes if number is not None).values(), reverse=True)
    if not counts:
        return False
    if rule.rule == "beta" or len(counts) < 3:
        return beta_confidence(counts[0], sum(counts[1:2])) >= rule.threshold
    return dirichlet_confidence(counts) >= rule.threshold


def beta_confidence(first: int, second: int) -> float:
    """Return the probability that the first answer's share among two is over one half, under a uniform prior.

    It is I_1/2(second + 1, first + 1), the chance of more than `second` heads in first + second + 1 tosses of a fair coin:
    exact, however many votes there are.
    """
    tosses = first + second + 1
    fewer = sum(math.comb(tosses, heads) for heads in range(second + 1))
    everything = 1 << tosses
    return (everything - fewer) / everything


def dirichlet_confidence(counts: Sequence[int]) -> float:
    """Return the probability that the first answer has the largest share of all, under a uniform prior over shares.

    Shares are independent Gamma(count + 1) variables over their sum, so it is the integral of the first one's density times
    the others' distribution functions: one dimension, no random draws, an error below 1e-10 up to 10,000 votes.

    Args:
        counts: votes of every answer, at least two; the first one is asked about.
    """
    first, *others = counts
    mean, deviation = first + 1.0, math.sqrt(first + 1.0)
    low, high = max(mean - _REACH * deviation, 0.0), mean + _REACH * deviation + 30
    nodes, weights = _quadrature()
    x = low + (high - low) * (nodes + 1) / 2
    log_poisson = _log_poisson(max(counts), x)  # [votes, nodes]
    values = np.exp(log_poisson[first])
    for count in others:
        values *= -np.expm1(np.logaddexp.reduce(log_poisson[: count + 1], axis=0).clip(max=0.0))
    return float(weights @ values * (high - low) / 2)


def _log_poisson(most: int, x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(x^k e^-x / k!) for k = 0 .. most: the density of Gamma(k + 1), and the terms of its distribution."""
    k = np.arange(most + 1)
    log_factorial = np.array([math.lgamma(i + 1) for i in k])
    log_p: NDArray[np.float64] = k[:, None] * np.log(x) - x - log_factorial[:, None]
    return log_p


@functools.cache
def _quadrature() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights
