"""`DraftSize`: the number of nodes that maximises expected committed tokens a second."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_size import DraftSize

Cost = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_PRIOR = (0.6, 0.36, 0.2, 0.14, 0.1, 0.08)


def _free(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones_like(rows)


def _proportional(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return rows


def _teach(size: DraftSize, accepted: Sequence[Sequence[int]], repeats: int) -> None:
    for _ in range(repeats):
        for nodes in accepted:
            size.observe(size.max_nodes, size.max_nodes, nodes)


def test_free_rows_are_all_used_and_dear_rows_not_at_all() -> None:
    size = DraftSize(_PRIOR)
    assert size.choose(4, 0, _free) == size.max_nodes
    assert size.choose(4, 0, _proportional) == 0


@settings(max_examples=60)
@given(
    prior=st.lists(st.floats(0.01, 1), min_size=1, max_size=12).map(lambda values: sorted(values, reverse=True)),
    n_trajectories=st.integers(1, 32),
    other_rows=st.integers(0, 64),
    fixed=st.floats(0.1, 50),
)
def test_choice_maximises_tokens_a_second(
    prior: list[float], n_trajectories: int, other_rows: int, fixed: float
) -> None:
    def cost(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return fixed + rows

    def rate(n: int) -> float:
        return (1 + sum(prior[:n])) / (fixed + other_rows + n_trajectories * (1 + n))

    chosen = DraftSize(prior).choose(n_trajectories, other_rows, cost)
    assert rate(chosen) == pytest.approx(max(rate(n) for n in range(len(prior) + 1)), rel=1e-12)


def test_acceptance_is_learned_node_by_node() -> None:
    size = DraftSize(_PRIOR)
    _teach(size, [[1, 2], [1], [], [1, 3]], repeats=500)
    assert size.acceptance() == pytest.approx([0.75, 0.25, 0.25, 0.0, 0.0, 0.0], abs=0.03)


def test_untried_nodes_are_scaled_by_how_the_tried_ones_fared() -> None:
    size = DraftSize(_PRIOR)
    for _ in range(2000):
        size.observe(2, 2, [])
    assert size.acceptance()[:2] == pytest.approx([0, 0], abs=0.02)
    assert (size.acceptance()[2:] < 0.1 * np.array(_PRIOR[2:])).all()


def test_useless_drafts_are_given_up_and_tried_again_from_time_to_time() -> None:
    size = DraftSize(_PRIOR)

    def cost(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return 10 + rows

    _teach(size, [[]], repeats=1000)
    chosen = [size.choose(1, 0, cost) for _ in range(200)]
    assert chosen.count(0) > 190
    assert 1 in chosen
    _teach(size, [[1, 2]], repeats=3000)
    assert size.choose(1, 0, cost) >= 2


def test_nodes_that_stay_empty_cost_no_rows() -> None:
    size = DraftSize(_PRIOR)
    for _ in range(2000):
        size.observe(size.max_nodes, 1, [1])

    def cost(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.where(rows > 2.5, 100.0, 1.0)

    assert size.choose(1, 0, cost) >= 1


def test_an_observation_of_fewer_nodes_leaves_the_others_alone() -> None:
    size = DraftSize(_PRIOR)
    size.observe(0, 0, [])
    assert size.acceptance() == pytest.approx(_PRIOR)
