"""Static tree shapes against Sequoia's dynamic program."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.tree_shape import heap_tree

acceptances = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4).map(
    lambda weights: tuple(sorted((w / max(1.0, sum(weights)) * 0.999 for w in weights), reverse=True))
)


def sequoia(acceptance: tuple[float, ...], n_nodes: int, max_depth: int) -> float:
    """Expected acceptance length of the best tree: `G` of arXiv 2402.12374, section 4.1, root included."""

    @cache
    def best(m: int, depth: int, n_children: int) -> float:
        """The best tree of exactly `m` nodes whose root has `n_children` children."""
        if m < 1 or (n_children and depth == 0):
            return -np.inf
        if n_children == 0:
            return 1.0 if m == 1 else -np.inf
        return (
            max(
                best(m - size, depth, n_children - 1) + acceptance[n_children - 1] * any_root(size, depth - 1)
                for size in range(1, m)
            )
            if m > 1
            else -np.inf
        )

    @cache
    def any_root(m: int, depth: int) -> float:
        return max(best(m, depth, n_children) for n_children in range(len(acceptance) + 1))

    return max(any_root(m, max_depth) for m in range(1, n_nodes + 2))


@given(acceptance=acceptances, n_nodes=st.integers(0, 9), max_depth=st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_every_prefix_is_the_best_tree_of_its_size(acceptance: tuple[float, ...], n_nodes: int, max_depth: int) -> None:
    shape = heap_tree(acceptance, n_nodes, max_depth)
    for n in range(len(shape.value)):
        assert shape.value[: n + 1].sum() == pytest.approx(sequoia(acceptance, n, max_depth), rel=1e-12)


@given(acceptance=acceptances, n_nodes=st.integers(0, 60), max_depth=st.integers(1, 6))
def test_prefixes_are_closed(acceptance: tuple[float, ...], n_nodes: int, max_depth: int) -> None:
    shape = heap_tree(acceptance, n_nodes, max_depth)
    places = list(zip(shape.parent.tolist(), shape.slot.tolist(), strict=True))
    assert len(set(places)) == len(places)
    for node in range(1, len(places)):
        parent, slot = places[node]
        assert 0 <= parent < node
        assert shape.depth[node] == shape.depth[parent] + 1 <= max_depth
        assert shape.value[node] == pytest.approx(shape.value[parent] * acceptance[slot])
        assert slot == 0 or (parent, slot - 1) in places[:node]
    assert (np.diff(shape.value) <= 1e-15).all()


def test_depth_limit_ends_a_chain() -> None:
    assert heap_tree([0.9], 50, 3).depth.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("acceptance", [[], [0.2, 0.3], [0.5, 0.0], [0.8, 0.3], [0.5, -0.1]])
def test_impossible_acceptance_is_refused(acceptance: list[float]) -> None:
    with pytest.raises(ValueError, match="acceptance"):
        heap_tree(acceptance, 4, 4)
