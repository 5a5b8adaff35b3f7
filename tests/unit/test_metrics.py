"""Measures against published vectors and brute force."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.metrics import (
    best_at_k,
    majority_at_k,
    mean_with_interval,
    paired_difference,
    pass_at_k,
    pass_hat_k,
    weighted_at_k,
)


@pytest.mark.parametrize(
    ("n", "c", "k", "expected"),
    [(10, 3, 1, 0.3), (10, 3, 5, 0.9166667), (4, 1, 4, 1), (5, 0, 3, 0), (100, 1, 10, 0.1), (16, 1, 4, 0.25)],
)
def test_pass_at_k(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 0, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_pass_at_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be from"):
        pass_at_k(n, c, k)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 0, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_pass_hat_k_refuses_impossible_counts(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be from"):
        pass_hat_k(n, c, k)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.data())
def test_any_and_all_are_means_over_all_subsets(correct: list[bool], data: st.DataObject) -> None:
    n, c, k = len(correct), sum(correct), data.draw(st.integers(1, len(correct)))
    subsets = list(combinations(correct, k))
    assert pass_at_k(n, c, k) == pytest.approx(fmean(map(any, subsets)))
    assert pass_hat_k(n, c, k) == pytest.approx(fmean(map(all, subsets)))


@pytest.mark.parametrize(
    ("gold", "expected"),
    [("A", [0.5, 0.5, 0.6, 0.7, 0.75, 1]), ("B", [1 / 3, 1 / 3, 0.3, 0.3, 0.25, 0]), ("Z", [0] * 6)],
)
def test_majority_at_k(gold: str, expected: list[float]) -> None:
    assert [majority_at_k("AAABBC", gold, k) for k in range(1, 7)] == pytest.approx(expected)


def test_majority_at_k_with_abstentions() -> None:
    answers = ["A", "A", "B", "B", "B", None, None, None]
    assert [majority_at_k(answers, "B", k) for k in (1, 3, 5, 8)] == pytest.approx([0.375, 0.6071429, 0.6875, 1])
    assert [majority_at_k(answers, "A", k) for k in (1, 3, 5, 8)] == pytest.approx([0.25, 0.375, 0.3125, 0])


@given(st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=8), st.data())
def test_majority_at_k_is_the_mean_over_all_subsets(answers: list[int | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(answers)))

    def share_correct(subset: tuple[int | None, ...]) -> float:
        votes = Counter(answer for answer in subset if answer is not None)
        tied = [answer for answer, count in votes.items() if count == max(votes.values())]
        return (0 in tied) / len(tied) if tied else 0.0

    expected = fmean(share_correct(subset) for subset in combinations(answers, k))
    assert majority_at_k(answers, 0, k) == pytest.approx(expected)


def test_majority_at_k_is_exact_for_thousands_of_samples() -> None:
    assert majority_at_k(["A"] * 2000, "A", 1000) == 1.0


@pytest.mark.parametrize("k", [0, 7])
def test_majority_at_k_refuses_more_than_there_are(k: int) -> None:
    with pytest.raises(ValueError, match="k must be from 1 to the number of samples 6"):
        majority_at_k("AAABBC", "A", k)


SCORED = st.lists(st.tuples(st.sampled_from([None, 0.0, 0.25, 0.5, 1.0]), st.booleans()), min_size=1, max_size=8)


@given(SCORED, st.data())
def test_best_at_k_is_the_mean_over_all_subsets(samples: list[tuple[float | None, bool]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(samples)))

    def share_correct(subset: tuple[tuple[float | None, bool], ...]) -> float:
        scored = [(score, is_correct) for score, is_correct in subset if score is not None]
        return fmean(right for score, right in scored if score == max(scored)[0]) if scored else 0.0

    scores, correct = zip(*samples, strict=True)
    expected = fmean(share_correct(subset) for subset in combinations(samples, k))
    assert best_at_k(scores, correct, k) == pytest.approx(expected)


def test_best_at_k_by_hand() -> None:
    scores, correct = [0.9, 0.5, 0.5, None], [False, True, False, True]
    assert [best_at_k(scores, correct, k) for k in (1, 2, 3, 4)] == pytest.approx([1 / 4, 1 / 4, 1 / 8, 0])


def test_best_at_k_with_perfect_scores_is_pass_at_k() -> None:
    correct = [True] * 3 + [False] * 7
    assert best_at_k([float(right) for right in correct], correct, 5) == pytest.approx(pass_at_k(10, 3, 5))


VOTES = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(0, 2)), st.sampled_from([0.0, 0.1, 0.2, 0.3])), min_size=1, max_size=8
)


@given(VOTES, st.data())
def test_weighted_at_k_is_the_mean_over_all_subsets(votes: list[tuple[int | None, float]], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(votes)))

    def share_correct(subset: tuple[tuple[int | None, float], ...]) -> float:
        weights = {
            answer: sum(round(10 * w) for a, w in subset if a == answer) for answer, _ in subset if answer is not None
        }
        tied = [answer for answer, weight in weights.items() if weight == max(weights.values()) > 0]
        return (0 in tied) / len(tied) if tied else 0.0

    answers, weights = zip(*votes, strict=True)
    expected = fmean(share_correct(subset) for subset in combinations(votes, k))
    assert weighted_at_k(answers, weights, 0, k) == pytest.approx(expected)


def test_weighted_at_k_draws_subsets_where_there_are_too_many() -> None:
    """Equal weights are a majority vote: 2000 subsets miss its exact value by 4 standard errors once in 16,000 tries."""
    answers = list("AAAAAABBBBBCCCDDEF") + [None] * 6
    drawn = weighted_at_k(answers, [0.5] * len(answers), "A", 9)
    assert drawn == weighted_at_k(answers, [0.5] * len(answers), "A", 9)
    assert drawn != weighted_at_k(answers, [0.5] * len(answers), "A", 9, seed=1)
    assert drawn == pytest.approx(majority_at_k(answers, "A", 9), abs=4 * 0.5 / 2000**0.5)


@pytest.mark.parametrize("weights", [[0.1, -0.1], [0.1], [0.1, float("nan")]])
def test_weighted_at_k_refuses_other_weights(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights must be 2 numbers from 0"):
        weighted_at_k("AB", weights, "A", 1)


@pytest.mark.parametrize("k", [0, 3])
def test_scored_measures_refuse_more_than_there_are(k: int) -> None:
    with pytest.raises(ValueError, match="k must be from 1 to the number of samples 2"):
        best_at_k([0.1, 0.2], [True, False], k)
    with pytest.raises(ValueError, match="k must be from 1 to the number of samples 2"):
        weighted_at_k("AB", [0.1, 0.2], "A", k)


def test_interval_is_wilsons() -> None:
    mean, low, high = mean_with_interval([1] * 8 + [0] * 2)
    assert (mean, low, high) == pytest.approx((0.8, 0.4901625, 0.9433178), abs=1e-6)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_interval_encloses_the_mean_inside_the_unit_range(values: list[float]) -> None:
    mean, low, high = mean_with_interval(values)
    assert 0 <= low <= mean + 1e-12
    assert mean - 1e-12 <= high <= 1
    assert high - low > 0


@pytest.mark.parametrize("values", [[], [1.5], [float("nan")]])
def test_interval_refuses_other_values(values: list[float]) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        mean_with_interval(values)


def test_a_paired_difference_is_surer_than_two_intervals() -> None:
    first = [1.0] * 60 + [0.0] * 40
    second = [1.0] * 50 + [0.0] * 50  # the same problems, ten of them lost
    difference = paired_difference(first, second)
    assert difference.mean == pytest.approx(0.1)
    assert difference == paired_difference(first, second)
    assert 0.02 < difference.low < 0.06 < 0.14 < difference.high < 0.18
    assert paired_difference(second, first).mean == pytest.approx(-0.1)


def test_the_bootstrap_interval_covers_as_often_as_it_says() -> None:
    """Of 40 intervals at 80 % 32 cover the truth, with a standard deviation of 2.5: fewer than 23 once in 2000 tries."""
    random = np.random.default_rng(0)
    covered = 0
    for _ in range(40):
        values = random.choice([-1.0, 0.0, 1.0], size=60, p=[0.2, 0.4, 0.4])
        difference = paired_difference(values.tolist(), [0.0] * 60, confidence=0.8)
        covered += difference.low <= 0.2 <= difference.high
    assert 22 < covered < 40


@pytest.mark.parametrize(("first", "second"), [([], []), ([1.0], [])])
def test_a_paired_difference_needs_pairs(first: list[float], second: list[float]) -> None:
    with pytest.raises(ValueError, match="give the same number of both"):
        paired_difference(first, second)
