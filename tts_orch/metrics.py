"""Unbiased measures over the samples of a problem, and their mean over problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from math import comb, sqrt
from statistics import NormalDist, fmean
from typing import NamedTuple

__all__ = ["MeanWithInterval", "majority_at_k", "mean_with_interval", "pass_at_k"]


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k samples is right, drawn from n samples of which c are right.

    Raises:
        ValueError: not 1 <= k <= n and 0 <= c <= n.

    Source: arXiv 2107.03374, section 2.1.
    """
    _check_k(k, n)
    if not 0 <= c <= n:
        raise ValueError(f"c must be from 0 to n={n}, not {c}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def majority_at_k(answers: Sequence[Hashable | None], gold: Hashable, k: int) -> float:
    """Return how often the majority of k of the answers is right: the exact mean over all subsets of size k.

    A subset whose largest class is tied counts by the share of correct ones among the tied classes.

    Args:
        answers: class or text of each sample's answer, None for an abstention, which never votes.
        gold: the right one.
        k: size of the subsets.

    Raises:
        ValueError: not 1 <= k <= number of answers.
    """
    _check_k(k, len(answers))
    votes = Counter(answer for answer in answers if answer is not None)
    n_gold = votes.pop(gold, 0)
    n_abstentions = sum(answer is None for answer in answers)
    total = Fraction(0)
    for j in range(1, min(n_gold, k) + 1):
        for n_tied, ways in enumerate(_ways(list(votes.values()), n_abstentions, k - j, j)):
            total += Fraction(comb(n_gold, j) * ways, n_tied + 1)
    return float(total / comb(len(answers), k))


def _ways(class_sizes: Sequence[int], n_abstentions: int, size: int, most: int) -> list[int]:
    """Count the subsets of `size` with at most `most` from every class, by the number of classes that reach `most`."""
    n_ties = size // most + 1
    ways = [[comb(n_abstentions, taken)] + [0] * (n_ties - 1) for taken in range(size + 1)]  # [size + 1][ties]
    for class_size in class_sizes:
        after = [[0] * n_ties for _ in range(size + 1)]
        for taken, by_ties in enumerate(ways):
            for x in range(min(class_size, most, size - taken) + 1):
                for ties, count in enumerate(by_ties):
                    if count:
                        after[taken + x][ties + (x == most)] += count * comb(class_size, x)
        ways = after
    return ways[size]


class MeanWithInterval(NamedTuple):
    """A mean over problems with the bounds of its confidence interval."""

    mean: float
    low: float
    high: float


def mean_with_interval(values: Sequence[float], confidence: float = 0.95) -> MeanWithInterval:
    """Return the mean of per-problem values in [0, 1] and its Wilson score interval.

    The interval speaks of other problems of the same kind. It stays inside [0, 1], is honest for few problems and for means of
    0 and 1, and a little wide where values are averages of several samples (their variance is at most mean * (1 - mean)).

    Raises:
        ValueError: no values, or one outside [0, 1].
    """
    if not values or not all(0 <= value <= 1 for value in values):
        raise ValueError("values must be numbers from 0 to 1, at least one")
    n, mean, z = len(values), fmean(values), NormalDist().inv_cdf((1 + confidence) / 2)
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(mean * (1 - mean) / n + (z / (2 * n)) ** 2) / (1 + z * z / n)
    return MeanWithInterval(mean, max(0.0, centre - half), min(1.0, centre + half))


def _check_k(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the number of samples {n}, not {k}")
