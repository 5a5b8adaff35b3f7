"""`NodeBudget`: the nodes that promise more tokens than their time is worth, over the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.strategies import draft_trees
from tts_orch.policies.drafting.draft_tree import DraftTree, VerifiedStep
from tts_orch.policies.drafting.node_budget import NodeBudget

Cost = Callable[[NDArray[np.float64]], NDArray[np.float64]]

PRIORS = np.array([0.5, 0.5, 0.5, 0.5])


def _free(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones_like(rows)


def _affine(fixed: float) -> Cost:
    return lambda rows: fixed + rows


def _chain(n: int, kind: int = 1) -> DraftTree:
    return DraftTree.chain(5, list(range(n)), kind=kind)


@dataclass(frozen=True)
class Source:
    trees: Sequence[DraftTree]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        return [tree.subtree(np.arange(tree.n_nodes) <= n) for tree, n in zip(self.trees, n_nodes, strict=True)]


def _draft(budget: NodeBudget, trees: Sequence[DraftTree], room: int = 99, other_rows: int = 0) -> list[DraftTree]:
    return budget.draft(Source(trees), np.full(len(trees), room, np.int64), other_rows, len(trees))


def _n_drafts(trees: Sequence[DraftTree]) -> list[int]:
    return [tree.n_nodes - 1 for tree in trees]


def _verified(tree: DraftTree, n_accepted: int) -> VerifiedStep:
    """A step that accepted the first nodes of a chain."""
    laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
    committed = np.append(tree.token[1 : n_accepted + 1], 9).astype(np.int32)
    return VerifiedStep("a", tree, np.arange(1, n_accepted + 1, dtype=np.int32), committed, *laws)


def _under_way(budget: NodeBudget) -> NodeBudget:
    """Make it one that verified large trees in the pass before."""
    budget._largest, budget._newest = 255.0, 512
    return budget


def test_free_rows_are_all_used_and_dear_rows_not_at_all() -> None:
    trees = [_chain(6), _chain(3), DraftTree.root_only(1)]
    assert _n_drafts(_draft(_under_way(NodeBudget(PRIORS, _free, 8)), trees)) == [6, 3, 0]
    assert _n_drafts(_draft(NodeBudget(PRIORS, _affine(0.0), 8), trees)) == [0, 0, 0]


def test_a_pass_verifies_no_more_than_twice_what_the_one_before_did() -> None:
    """Whatever rates say: two nodes a trajectory at first."""
    budget = NodeBudget(np.full(4, 0.99), _free, 60)
    sizes = [sum(_n_drafts(_draft(budget, [_chain(60)] * 4))) for _ in range(6)]
    assert sizes == [8, 24, 56, 120, 240, 240]


def test_no_node_is_deeper_than_what_can_be_committed() -> None:
    assert _n_drafts(_draft(NodeBudget(PRIORS, _free, 8), [_chain(6)], room=2)) == [2]


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(draft_trees(), min_size=1, max_size=6), other_rows=st.integers(0, 40), fixed=st.floats(0.1, 400))
def test_no_other_number_of_the_best_nodes_gains_more(trees: list[DraftTree], other_rows: int, fixed: float) -> None:
    rate = 0.4
    worths = np.sort(np.concatenate([rate ** tree.depth[1:].astype(float) for tree in trees]))[::-1]
    budget = _under_way(NodeBudget(np.full(4, rate), _affine(fixed), 255))
    n_kept = sum(_n_drafts(_draft(budget, trees, other_rows=other_rows)))
    price = 1.2 * len(trees) / (fixed + len(trees))  # of a row, in tokens of plain decoding, with the margin
    gains = [worths[:k].sum() - k * price for k in range(len(worths) + 1)]
    assert gains[n_kept] == pytest.approx(max(gains), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(trees=st.lists(draft_trees(), min_size=1, max_size=6), fixed=st.floats(0.1, 40))
def test_what_is_kept_is_a_tree_of_the_same_paths(trees: list[DraftTree], fixed: float) -> None:
    def paths(tree: DraftTree) -> set[tuple[int, ...]]:
        return {tuple(tree.token[tree.path(node)].tolist()) for node in range(1, tree.n_nodes)}

    for before, after in zip(trees, _draft(NodeBudget(PRIORS, _affine(fixed), 255), trees), strict=True):
        assert after.token[0] == before.token[0]
        assert paths(after) <= paths(before)
        assert all(after.parent[node] < node for node in range(1, after.n_nodes))


def test_rates_are_learned_by_kind() -> None:
    budget = NodeBudget(PRIORS, _affine(1.0), 8)
    good, bad = _chain(1, kind=3), _chain(1, kind=1)
    for _ in range(100):
        budget.observe([_verified(good, 1), _verified(bad, 0)])
    assert budget.calibration.rates[3] > 0.85
    assert budget.calibration.rates[1] < 0.15
    budget._tokens = budget._time = 1.0  # whatever this taught about the speed
    assert _n_drafts(_draft(budget, [good, bad])) == [1, 0]


def test_a_group_that_disappoints_is_seen_through_at_once() -> None:
    """Kinds that were never met are judged by those of their group that were."""
    priors = np.full((2, 50), 0.6)
    budget = NodeBudget(priors, _affine(1.0), 8)
    for kind in range(40):
        budget.observe([_verified(_chain(1, kind=kind), 0)])
    assert budget.calibration.rates[45] < 0.15
    assert budget.calibration.rates[95] == pytest.approx(0.6)


def test_only_children_of_accepted_nodes_are_judged() -> None:
    budget = NodeBudget(PRIORS, _free, 8)
    tree = DraftTree.chain(5, [0, 1, 2, 3])
    tree.kind[1:] = [0, 1, 2, 3]
    for _ in range(200):
        budget.observe([_verified(tree, 2)])  # node 3 was judged and rejected, node 4 never judged
    assert budget.calibration._kinds[0].tolist() == [[200, 200, 200, 0]]
    assert budget.calibration.rates.tolist() == pytest.approx([1, 1, 0, 0.6], abs=0.25)


def test_behind_a_cut_nothing_is_judged() -> None:
    budget = NodeBudget(PRIORS, _free, 8)
    tree = DraftTree.chain(5, [0, 1, 2])
    tree.kind[1:] = [0, 1, 2]
    laws = np.zeros((4, 1), np.int32), np.zeros((4, 1), np.float32)
    budget.observe([VerifiedStep("a", tree, np.array([1], np.int32), np.array([0], np.int32), *laws)])
    assert budget.calibration._kinds[0].tolist() == [[1, 0, 0, 0]]


def test_a_rate_learned_too_low_recovers() -> None:
    budget = NodeBudget(PRIORS, _affine(3.0), 4)
    chain = _chain(1)
    for _ in range(600):
        budget.observe([_verified(chain, 0)])
    assert _n_drafts(_draft(budget, [chain])) == [0]
    for _ in range(8_000):
        (kept,) = _draft(budget, [chain])
        budget.observe([_verified(kept, kept.n_nodes - 1)])
    assert _n_drafts(_draft(budget, [chain])) == [1]


def test_a_prompt_in_the_pass_makes_no_node_pay() -> None:
    trees = [DraftTree.chain(5, list(range(8)))] * 4
    alone, beside = (_n_drafts(_draft(NodeBudget(PRIORS, _affine(10.0), 8), trees, other_rows=n)) for n in (0, 256))
    assert alone == beside
    assert 0 < sum(alone) < 32


def test_a_probe_is_little_larger_than_other_passes() -> None:
    """One trajectory that drafts much must not make a probe of all others as large."""
    budget = NodeBudget(PRIORS, _affine(0.0), 64)
    budget._n_nodes = 10.0
    budget._n_passes = 31
    assert sum(_n_drafts(_draft(budget, [_chain(64)] * 16))) == 22


def test_fast_decoding_asks_more_of_a_node() -> None:
    """A row that pays against plain decoding need not pay where the batch already commits many tokens a pass."""
    budget = NodeBudget(np.full(2, 0.4), _affine(3.0), 1)
    assert _n_drafts(_draft(budget, [_chain(1)])) == [1]  # 0.4 tokens for a row worth a quarter
    budget._tokens, budget._time = 3.0, 1.2
    assert budget.speedup == 2.5
    assert _n_drafts(_draft(budget, [_chain(1)])) == [0]
