"""Static tree shapes against Sequoia's dynamic program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sequoia import sequoia
from tts_orch.policies.drafting.tree_shape import heap_tree

acceptances = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4).map(
    lambda weights: tuple(sorted((w / max(1.0, sum(weights)) * 0.999 for w in weights), reverse=True))
)


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
