"""`NodeBudget`: the nodes that maximise expected committed tokens a second, over the whole batch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.strategies import draft_trees
from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.drafting.node_budget import NodeBudget

Cost = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def _free(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones_like(rows)


def _affine(fixed: float) -> Cost:
    return lambda rows: fixed + rows


def _chain(n: int, source: int = 1) -> DraftTree:
    return DraftTree.chain(5, list(range(n)), source)


def _n_drafts(trees: list[DraftTree]) -> list[int]:
    return [tree.n_nodes - 1 for tree in trees]


def test_free_rows_are_all_used_and_dear_rows_not_at_all() -> None:
    trees = [_chain(6), _chain(3), DraftTree.root_only(1)]
    assert _n_drafts(NodeBudget(8).choose(trees, 0, _free)) == [6, 3, 0]
    assert _n_drafts(NodeBudget(8).choose(trees, 0, _affine(0.0))) == [0, 0, 0]


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(draft_trees(), min_size=1, max_size=6), other_rows=st.integers(0, 40), fixed=st.floats(0.1, 40))
def test_no_other_number_of_the_best_nodes_promises_more(trees: list[DraftTree], other_rows: int, fixed: float) -> None:
    budget = NodeBudget(255)
    worths = np.sort(budget.worths(trees))[::-1]
    rates = [(len(trees) + worths[:k].sum()) / (fixed + other_rows + len(trees) + k) for k in range(len(worths) + 1)]
    n_kept = sum(_n_drafts(budget.choose(trees, other_rows, _affine(fixed))))
    assert rates[n_kept] == pytest.approx(max(rates), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(draft_trees(), min_size=1, max_size=6), fixed=st.floats(0.1, 40))
def test_what_is_kept_is_a_tree_of_the_same_paths(trees: list[DraftTree], fixed: float) -> None:
    def paths(tree: DraftTree) -> set[tuple[int, ...]]:
        return {tuple(tree.token[tree.path(node)].tolist()) for node in range(1, tree.n_nodes)}

    for before, after in zip(trees, NodeBudget(255).choose(trees, 0, _affine(fixed)), strict=True):
        assert after.token[0] == before.token[0]
        assert paths(after) <= paths(before)
        assert all(after.parent[node] < node for node in range(1, after.n_nodes))


def test_rates_are_learned_by_kind() -> None:
    budget = NodeBudget(8)
    good, bad = _chain(1, source=4), _chain(1, source=1)
    for _ in range(100):
        budget.observe(good, [1])
        budget.observe(bad, [])
    assert _n_drafts(budget.choose([good, bad], 0, _affine(1.0))) == [1, 0]


def test_only_children_of_accepted_nodes_are_judged() -> None:
    budget = NodeBudget(8)
    chain = _chain(4)
    before = budget.worths([chain])
    for _ in range(200):
        budget.observe(chain, [1, 2])  # node 3 was judged and rejected, node 4 never judged
    rate = budget.worths([chain])[0]
    assert rate == pytest.approx(2 / 3, abs=0.02)
    assert before[0] != pytest.approx(rate, abs=0.02)


def test_a_rate_learned_too_low_recovers() -> None:
    budget = NodeBudget(4)
    chain = _chain(1)
    for _ in range(400):
        budget.observe(chain, [])
    cost = _affine(3.0)
    assert _n_drafts(budget.choose([chain], 0, cost)) == [0]
    for _ in range(8_000):
        (kept,) = budget.choose([chain], 0, cost)
        budget.observe(kept, list(range(1, kept.n_nodes)))
    assert _n_drafts(budget.choose([chain], 0, cost)) == [1]


def test_drafters_are_asked_for_what_lately_paid() -> None:
    budget = NodeBudget(24)
    assert budget.n_wanted == 24
    budget.choose([_chain(24)], 0, _affine(0.0))
    assert budget.n_wanted == 2
    budget.choose([_chain(4)], 0, _free)
    assert budget.n_wanted == 6
