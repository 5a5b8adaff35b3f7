"""Unbiased measures over the samples of a problem, their mean over problems, and what two methods differ by.

Samples that failed or gave no answer are samples: they are never right, never win, and stay in every denominator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import comb, sqrt
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MeanWithInterval",
    "best_at_k",
    "majority_at_k",
    "mean_with_interval",
    "paired_difference",
    "pass_at_k",
    "pass_hat_k",
    "weighted_at_k",
]

_MOST_SUBSETS: Final = 2000
_N_BLOCKS: Final = 100
_BLOCK: Final = 100  # resamples at a time, so that many problems take little memory
_ROUNDING: Final = 1e-12  # weights are sums of rounded numbers: classes this close, relatively, are tied


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k samples is right, drawn from n samples of which c are right.

    Raises:
        ValueError: not 1 <= k <= n and 0 <= c <= n.

    Source: arXiv 2107.03374, section 2.1.
    """
    _check_counts(n, c, k)
    return 1.0 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k samples are right (pass^k), drawn from n samples of which c are right.

    Raises:
        ValueError: not 1 <= k <= n and 0 <= c <= n.

    Source: arXiv 2406.12045.
    """
    _check_counts(n, c, k)
    return comb(c, k) / comb(n, k)


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


def best_at_k(scores: Sequence[float | None], correct: Sequence[bool], k: int) -> float:
    """Return how often the best-scored of k samples is right: the exact mean over all subsets of size k.

    Samples that are tied for the best count by the share of right ones among them.

    Args:
        scores: of each sample, higher is better; None for one that could not be scored, which never wins.
        correct: whether each is right.
        k: size of the subsets.

    Raises:
        ValueError: not 1 <= k <= number of scores, or not as many scores as verdicts.
    """
    _check_k(k, len(scores))
    by_score: dict[float, list[bool]] = {}
    for score, is_correct in zip(scores, correct, strict=True):
        if score is not None:
            by_score.setdefault(score, []).append(is_correct)
    total, n_left = Fraction(0), len(scores)  # those not better than the score at hand
    for score in sorted(by_score, reverse=True):
        tied = by_score[score]
        n_winning = comb(n_left, k) - comb(n_left - len(tied), k)  # by symmetry each of the tied is as often among them
        total += Fraction(n_winning * sum(tied), len(tied))
        n_left -= len(tied)
    return float(total / comb(len(scores), k))


def weighted_at_k(
    answers: Sequence[Hashable | None], weights: Sequence[float], gold: Hashable, k: int, seed: int = 0
) -> float:
    """Return how often the heaviest answer class of k samples is right: a mean over subsets of size k.

    All subsets count where there are at most 2000, otherwise so many random ones. Tied classes count as in `majority_at_k`;
    where nothing has a weight, nothing wins.

    Args:
        answers: class or text of each sample's answer, None for an abstention.
        weights: non-negative weight of each sample's vote.
        gold: the right one.
        k: size of the subsets.
        seed: chooses the random subsets.

    Raises:
        ValueError: not 1 <= k <= number of answers, not as many weights, or one that is negative or no number.
    """
    n = len(answers)
    _check_k(k, n)
    if len(weights) != n or not all(weight >= 0 for weight in weights):
        raise ValueError(f"weights must be {n} numbers from 0, one an answer")
    columns = {answer: column for column, answer in enumerate({gold, *answers} - {None})}
    votes = np.zeros((n, len(columns)))
    for row, (answer, weight) in enumerate(zip(answers, weights, strict=True)):
        if answer is not None:
            votes[row, columns[answer]] = weight
    totals = _subsets(n, k, seed) @ votes  # [subsets, n] @ [n, classes]
    heaviest = totals.max(axis=1, keepdims=True)
    wins = (totals > 0) & (totals >= heaviest * (1 - _ROUNDING))
    return float(np.mean(wins[:, columns[gold]] / np.maximum(wins.sum(axis=1), 1)))


@lru_cache(maxsize=64)
def _subsets(n: int, k: int, seed: int) -> NDArray[np.float64]:
    """Return subsets of size k as rows of zeros and ones: all of them, or as many random ones as are allowed."""
    if comb(n, k) <= _MOST_SUBSETS:
        members = np.array(list(combinations(range(n), k)))
    else:
        members = np.random.default_rng(seed).random((_MOST_SUBSETS, n)).argsort(axis=1)[:, :k]
    rows = np.zeros((len(members), n))
    np.put_along_axis(rows, members, 1.0, axis=1)
    return rows


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


def paired_difference(
    first: Sequence[float], second: Sequence[float], confidence: float = 0.95, seed: int = 0
) -> MeanWithInterval:
    """Return the mean of `first - second` over the same problems and its percentile bootstrap interval over problems.

    Args:
        first: value of each problem under one method.
        second: values of the same problems, in the same order, under another one.
        confidence: of the interval.
        seed: draws the resamples.

    Raises:
        ValueError: no problems, or not as many of one as of the other.
    """
    if not first or len(first) != len(second):
        raise ValueError(f"{len(first)} against {len(second)} values; give the same number of both, at least 1")
    differences, random = np.subtract(first, second), np.random.default_rng(seed)
    n = len(differences)
    draws = (random.integers(n, size=(_BLOCK, n)) for _ in range(_N_BLOCKS))
    means = np.concatenate([differences[drawn].mean(axis=1) for drawn in draws])
    low, high = np.quantile(means, ((1 - confidence) / 2, (1 + confidence) / 2))
    return MeanWithInterval(float(differences.mean()), float(low), float(high))


def _check_counts(n: int, c: int, k: int) -> None:
    _check_k(k, n)
    if not 0 <= c <= n:
        raise ValueError(f"c must be from 0 to n={n}, not {c}")


def _check_k(k: int, n: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be from 1 to the number of samples {n}, not {k}")
