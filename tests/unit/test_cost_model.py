"""The cost curve: measured at knots, never decreasing, corrected near real passes only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.engine.cost_model import CostModel

_KNOTS = (1, 2, 4, 8, 16)
_seconds = st.lists(st.floats(1e-4, 10), min_size=len(_KNOTS), max_size=len(_KNOTS))


def test_curve_is_linear_between_knots_and_goes_on_with_the_last_slope() -> None:
    model = CostModel([1.0, 1.0, 2.0, 4.0, 6.0], _KNOTS)
    assert model.seconds(np.array([0, 1, 3, 6, 12, 16, 24])).tolist() == [1.0, 1.0, 1.5, 3.0, 5.0, 6.0, 8.0]


@given(seconds=_seconds, rows=st.lists(st.floats(0, 100), min_size=2, max_size=8))
def test_more_rows_never_cost_less(seconds: list[float], rows: list[float]) -> None:
    costs = CostModel(seconds, _KNOTS).seconds(np.sort(np.array(rows)))
    assert (np.diff(costs) >= 0).all()
    assert (costs > 0).all()


def test_measurement_takes_the_median_of_every_knot_and_ends_at_the_largest_pass() -> None:
    noise = iter([9.0, *[0.0, 5.0, 0.0] * 7])  # the first pass compiles; one in three is disturbed
    model = CostModel.measure(lambda n_rows: n_rows + next(noise), max_rows=20)
    assert model.table() == [(n, float(n)) for n in (1, 2, 4, 8, 12, 16, 20)]


def test_one_knot_is_enough() -> None:
    assert CostModel([2.0], [4]).seconds(np.array([1, 4, 8])).tolist() == [2.0, 2.0, 4.0]


def test_real_passes_move_the_curve_where_they_are() -> None:
    model = CostModel([1.0] * 5, _KNOTS)
    for _ in range(400):
        model.observe(16, 3.0)
    curve = dict(model.table())
    assert curve[16] == pytest.approx(3.0, rel=0.01)
    assert curve[1] == curve[4] == 1.0


def test_one_disturbed_pass_changes_little() -> None:
    model = CostModel([1.0] * 5, _KNOTS)
    model.observe(4, 1000.0)
    assert float(model.seconds(4)) < 1.2
