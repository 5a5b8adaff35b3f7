"""The union of draft trees: every prefix once, the best ones first, as brute force over sets of prefixes finds them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import draft_trees
from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.routing.merged_tree import merged_tree
from tts_orch.policies.routing.tree_confidence import path_log_promises

_ROOT = 3
_Prefix = tuple[int, ...]


@st.composite
def scored_trees(draw: st.DrawFn) -> DraftTree:
    """Small trees on one root whose tokens and probabilities often coincide."""
    tree = draw(draft_trees(vocabulary_size=4, max_nodes=10, root_token=_ROOT))
    n = tree.n_nodes - 1
    log_q = draw(st.lists(st.sampled_from([0.0, -0.25, -0.5, -1.0, -3.0]), min_size=n, max_size=n))
    kind = draw(st.lists(st.integers(1, 50), min_size=n, max_size=n))
    return replace(tree, log_q=np.array([0.0, *log_q], np.float32), kind=np.array([0, *kind], np.int32))


def _prefixes(tree: DraftTree) -> list[_Prefix]:
    """Tokens on the path to each node."""
    return [tuple(tree.token[tree.path(node)].tolist()) for node in range(tree.n_nodes)]


def _scores(trees: Sequence[DraftTree]) -> Mapping[_Prefix, float]:
    """The best score of every prefix."""
    best: dict[_Prefix, float] = {}
    for tree in trees:
        for prefix, score in zip(_prefixes(tree), path_log_promises(tree), strict=True):
            best[prefix] = max(best.get(prefix, -np.inf), score)
    return best


several = st.lists(scored_trees(), min_size=1, max_size=3)


@settings(deadline=None)
@given(several)
def test_a_union_has_every_prefix_of_all_trees_once(trees: list[DraftTree]) -> None:
    prefixes = _prefixes(merged_tree(trees))
    assert len(set(prefixes)) == len(prefixes)
    assert set(prefixes) == set().union(*map(_prefixes, trees))


@settings(deadline=None)
@given(several, st.integers(0, 12))
def test_a_union_is_a_tree(trees: list[DraftTree], n_nodes: int) -> None:
    merged = merged_tree(trees, n_nodes)
    assert merged.token[0] == _ROOT
    assert merged.parent[0] == -1
    assert (merged.parent[1:] < np.arange(1, merged.n_nodes)).all()
    assert (merged.parent[1:] >= 0).all()
    assert (merged.depth[1:] == merged.depth[merged.parent[1:]] + 1).all()
    for children in merged.children:
        assert merged.slot[children].tolist() == list(range(len(children)))
        assert len(set(merged.token[children])) == len(children)


@settings(deadline=None)
@given(several, st.integers(0, 12))
def test_an_equal_budget_keeps_the_best_prefixes(trees: list[DraftTree], n_nodes: int) -> None:
    scores = _scores(trees)
    merged = merged_tree(trees, n_nodes)
    ranking = [()]
    for _ in range(min(n_nodes, len(scores) - 1)):
        left = [prefix for prefix in scores if prefix not in ranking and prefix[:-1] in ranking]
        ranking.append(
            min(left, key=lambda prefix: (-scores[prefix], len(prefix), ranking.index(prefix[:-1]), prefix[-1]))
        )
    assert _prefixes(merged) == ranking
    dropped = [score for prefix, score in scores.items() if prefix not in ranking]
    assert max(dropped, default=-np.inf) <= min(scores[prefix] for prefix in ranking)
    assert path_log_promises(merged) == pytest.approx([scores[prefix] for prefix in _prefixes(merged)])


@settings(deadline=None)
@given(several, st.integers(0, 12))
def test_the_order_of_the_trees_does_not_matter(trees: list[DraftTree], n_nodes: int) -> None:
    one, other = merged_tree(trees, n_nodes), merged_tree(trees[::-1], n_nodes)
    assert _prefixes(one) == _prefixes(other)
    np.testing.assert_array_equal(one.log_promise, other.log_promise)


@settings(deadline=None)
@given(several)
def test_a_node_is_known_by_the_first_tree_with_its_best_score(trees: list[DraftTree]) -> None:
    scores, merged = _scores(trees), merged_tree(trees)
    for prefix, kind in zip(_prefixes(merged)[1:], merged.kind[1:], strict=True):
        kinds = [
            own
            for tree in trees
            for at, score, own in zip(_prefixes(tree), path_log_promises(tree), tree.kind, strict=True)
            if at == prefix and score == scores[prefix]
        ]
        assert kind == kinds[0]


def test_what_is_promised_decides_and_the_law_is_kept() -> None:
    likely = replace(DraftTree.chain(_ROOT, [7]), log_q=np.log([1.0, 0.9]).astype(np.float32))
    right = replace(DraftTree.chain(_ROOT, [8]), log_q=np.log([1.0, 0.2]).astype(np.float32))
    right = replace(right, log_promise=np.log([1.0, 0.8]).astype(np.float32))
    likely = replace(likely, log_promise=np.log([1.0, 0.5]).astype(np.float32))
    merged = merged_tree([likely, right])
    assert merged.log_promise is not None
    assert merged.token.tolist() == [_ROOT, 8, 7]
    assert np.exp(merged.log_q) == pytest.approx([1.0, 0.2, 0.9])
    assert np.exp(merged.log_promise) == pytest.approx([1.0, 0.8, 0.5])


def test_two_chains_share_their_beginning() -> None:
    one, other = DraftTree.chain(_ROOT, [7, 8, 9]), DraftTree.chain(_ROOT, [7, 8, 10, 11])
    merged = merged_tree([one, other])
    assert sorted(merged.token[1:].tolist()) == [7, 8, 9, 10, 11]
    assert merged.children[merged.path(int(np.flatnonzero(merged.token == 8)[0]))[-1]] == [3, 4]
