"""Measures against published vectors and brute force."""

from __future__ import annotations

from collections import Counter
from itertools import combinations
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.metrics import majority_at_k, mean_with_interval, pass_at_k


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
