from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.bench.intervals import RatioInterval, is_slower, ratio_interval
from tts_orch.bench.markdown import pivot, table
from tts_orch.bench.overlap import ngram_overlap

RATES = st.lists(st.floats(0.5, 2.0), min_size=1, max_size=12)


@given(RATES)
def test_interval_holds_the_median_and_lies_within_the_ratios(ratios: list[float]) -> None:
    interval = ratio_interval(ratios, [1.0] * len(ratios))
    assert min(ratios) <= interval.low <= interval.median <= interval.high <= max(ratios)
    assert interval.median == pytest.approx(np.median(ratios))


def test_interval_covers_the_true_median_about_19_times_in_20() -> None:
    generator = np.random.default_rng(1)
    samples = np.exp(generator.normal(0.2, 0.1, (200, 15)))
    intervals = [ratio_interval(list(sample), [1.0] * 15) for sample in samples]
    covered = sum(interval.low <= np.exp(0.2) <= interval.high for interval in intervals)
    assert covered >= 176  # of 200; with 95 % coverage fewer come up once in 500


def test_interval_is_of_pairs_and_not_of_sums() -> None:
    assert ratio_interval([10.0, 1.0, 1.0], [10.0, 1.0, 2.0]).median == 1.0


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0])])
def test_interval_needs_pairs(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="measurements"):
        ratio_interval(a, b)


@pytest.mark.parametrize(
    ("high", "band_low", "slower"), [(0.95, 0.97, True), (0.98, 0.97, False), (1.01, 1.02, False), (0.99, 1.02, True)]
)
def test_slower_is_below_one_and_below_the_band(high: float, band_low: float, slower: bool) -> None:
    ratio, band = RatioInterval(high - 0.01, high - 0.02, high), RatioInterval(1.03, band_low, 1.04)
    assert is_slower(ratio, band) == slower


def test_overlap_counts_what_was_said_before() -> None:
    shares = ngram_overlap([1, 2], [[3, 3], [3, 4], [2, 3, 4]])
    np.testing.assert_allclose(shares[:, 0], [0, 1 / 2, 1])  # the first is not compared with itself
    np.testing.assert_allclose(shares[:, 1], [0, 1 / 2, 2 / 3])  # 2 2 is new in the third
    np.testing.assert_allclose(shares[:, 2], [0, 1 / 2, 1 / 3])


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), min_size=1, max_size=4))
def test_overlap_falls_with_the_order_and_a_copy_was_said_before(trajectories: list[list[int]]) -> None:
    shares = ngram_overlap([0, 1, 2, 3], [*trajectories, trajectories[-1]])
    assert (np.diff(shares, axis=1) <= 1e-12).all()
    np.testing.assert_array_equal(shares[-1], 1)


def test_pivot_means_equal_keys_and_marks_what_is_missing() -> None:
    rows = [
        {"method": "a", "workload": "x", "tau": 1.0},
        {"method": "a", "workload": "x", "tau": 2.0},
        {"method": "a", "workload": "y", "tau": 3.0},
        {"method": "b", "workload": "y", "tau": 4.0},
    ]
    assert pivot(rows, "method", "workload", "tau", mean=True).splitlines() == [
        "| method | x | y | mean |",
        "| --- | --- | --- | --- |",
        "| a | 1.50 | 3.00 | 2.25 |",
        "| b | - | 4.00 | - |",
    ]


def test_table_writes_numbers_texts_and_gaps() -> None:
    assert table(["a", "b"], [[1, 2.345], ["x", None], ["y", float("nan")]], 1).splitlines()[2:] == [
        "| 1 | 2.3 |",
        "| x | - |",
        "| y | - |",
    ]
