"""Dynamic trees against brute force, and the choice of candidates against the verifier's own rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.drafting.dynamic_tree import DynamicTrees
from tts_orch.policies.drafting.gumbel import gumbel, keyed_argmax
from tts_orch.policies.drafting.law_candidates import Candidates, Parents, candidate_priors, choose_candidates
from tts_orch.records import SamplingParams

_RATES = candidate_priors().ravel()
_VOCABULARY_SIZE = 30


def _parents(n: int, law: SamplingParams, *, is_keyed: bool, seed: int = 3) -> Parents:
    return Parents(
        [law] * n,
        np.full(n, is_keyed),
        np.full(n, seed, np.uint64),
        np.arange(10, 10 + n),
        np.ones(n, np.int32),
    )


def _grown(n_trees: int, width: int, depth: int, seed: int) -> tuple[DynamicTrees, list[dict[tuple[int, ...], float]]]:
    """Grow trees on random laws; return with them each tree's nodes by path, with their cumulative log-probabilities."""
    random = np.random.default_rng(seed)
    trees = DynamicTrees(range(n_trees), _RATES)
    seen: list[dict[tuple[int, ...], float]] = [{} for _ in range(n_trees)]
    nodes = np.arange(n_trees)
    paths: dict[int, tuple[int, ...]] = dict.fromkeys(range(n_trees), ())
    for _ in range(depth):
        n_before = len(trees.token)
        laws = random.dirichlet(np.full(_VOCABULARY_SIZE, 0.1 + random.random()), len(nodes))
        ids = np.argsort(-laws, axis=1)[:, :width].astype(np.int32)
        log_q = np.log(np.maximum(np.take_along_axis(laws, ids, axis=1), 1e-9))
        trees.expand(
            nodes, choose_candidates(ids, log_q, _parents(len(nodes), SamplingParams(), is_keyed=False), width)
        )
        for node in range(n_before, len(trees.token)):
            above = int(trees.parent[node])
            paths[node] = (*paths[above], int(trees.token[node]))
            row = int(np.flatnonzero(nodes == above)[0])
            own = log_q[row][ids[row] == trees.token[node]][0]
            tree = int(trees.tree[node])
            seen[tree][paths[node]] = seen[tree].get(paths[above], 0.0) + own
        nodes = trees.beams(np.full(n_trees, width), np.full(n_trees, depth))
    return trees, seen


def _paths(tree: DraftTree) -> list[tuple[int, ...]]:
    return [tuple(tree.token[tree.path(node)].tolist()) for node in range(1, tree.n_nodes)]


@given(
    n_trees=st.integers(1, 4),
    width=st.integers(1, 5),
    depth=st.integers(1, 4),
    n_nodes=st.integers(0, 25),
    seed=st.integers(0, 2**32),
)
def test_trees_are_the_best_nodes(n_trees: int, width: int, depth: int, n_nodes: int, seed: int) -> None:
    grown, seen = _grown(n_trees, width, depth, seed)
    wanted = np.arange(n_nodes, n_nodes + n_trees)
    for number, (tree, scores, n) in enumerate(zip(grown.build(wanted), seen, wanted, strict=True)):
        paths = _paths(tree)
        assert tree.token[0] == number
        assert len(paths) == min(n, len(scores))
        assert len(set(paths)) == len(paths)
        assert (tree.parent[1:] < np.arange(1, tree.n_nodes)).all()
        assert all(len(path) == 1 or path[:-1] in paths for path in paths)
        assert tree.depth.tolist() == [0, *map(len, paths)]
        best = sorted(scores.values(), reverse=True)[: len(paths)]
        assert [scores[path] for path in paths] == pytest.approx(best)
        along = [sum(tree.log_q[tree.path(node)]) for node in range(1, tree.n_nodes)]
        assert along == pytest.approx([scores[path] for path in paths], rel=1e-5, abs=1e-6)
        assert all(tree.slot[children].tolist() == list(range(len(children))) for children in tree.children)


def test_beams_are_the_best_of_the_last_level_within_their_depth() -> None:
    trees = DynamicTrees([5, 6], _RATES)
    log_q = np.log([[0.5, 0.3], [0.6, 0.1]])
    ids = np.array([[1, 2], [3, 4]], np.int32)
    trees.expand(np.arange(2), choose_candidates(ids, log_q, _parents(2, SamplingParams(), is_keyed=False), 2))
    assert trees.token[trees.beams(np.array([1, 1]), np.array([2, 2]))].tolist() == [1, 3]
    assert trees.token[trees.beams(np.array([2, 2]), np.array([2, 1]))].tolist() == [1, 2]


def test_a_certain_child_does_not_come_before_its_parent() -> None:
    trees, nodes = DynamicTrees([0], _RATES), np.zeros(1, np.int64)
    for token in (7, 8, 9):
        ids = np.array([[token]], np.int32)
        trees.expand(nodes, choose_candidates(ids, np.zeros((1, 1)), _parents(1, SamplingParams(), is_keyed=False), 1))
        nodes = trees.beams(np.ones(1, np.int64), np.array([3]))
    for n in range(4):
        (tree,) = trees.build(np.array([n]))
        assert tree.token.tolist() == [0, 7, 8, 9][: n + 1]
        assert tree.parent.tolist() == [-1, 0, 1, 2][: n + 1]


def test_tokens_that_the_law_excludes_are_no_nodes() -> None:
    trees = DynamicTrees([0], _RATES)
    log_q = np.log([[0.6, 0.3, 0.1]])
    law = SamplingParams(top_k=1)
    trees.expand(
        np.zeros(1, np.int64),
        choose_candidates(np.array([[7, 8, 9]], np.int32), log_q, _parents(1, law, is_keyed=True), 3),
    )
    assert trees.token.tolist() == [0, 7]


@settings(deadline=None)  # the first call compiles
@given(
    temperature=st.sampled_from([0.3, 0.8, 1.5]),
    top_k=st.sampled_from([0, 1, 4]),
    min_p=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 2**63),
)
def test_keyed_candidates_begin_with_what_a_verifier_of_the_same_law_draws(
    temperature: float, top_k: int, min_p: float, seed: int
) -> None:
    law = SamplingParams(temperature=temperature, top_k=top_k, min_p=min_p)
    log_q = np.log(np.random.default_rng(seed).dirichlet(np.full(_VOCABULARY_SIZE, 0.5), 3))
    ids = np.tile(np.arange(_VOCABULARY_SIZE, dtype=np.int32), (3, 1))
    parents = _parents(3, law, is_keyed=True, seed=seed)
    chosen = choose_candidates(ids, log_q, parents, 4)
    weights = log_q / temperature
    if top_k:
        weights[weights < np.sort(weights, axis=1)[:, -top_k, None]] = -np.inf
    if min_p:
        weights[weights < weights.max(axis=1, keepdims=True) + np.log(min_p)] = -np.inf
    assert chosen.token[:, 0].tolist() == keyed_argmax(weights, parents.seeds, parents.positions).tolist()
    for row in range(3):
        noisy = weights[row] + gumbel(seed, int(parents.positions[row]), ids[row])
        n = int((chosen.log_promise[row] > -np.inf).sum())
        assert chosen.token[row, :n].tolist() == np.argsort(-noisy)[:n].tolist()
        assert chosen.log_q[row].tolist() == pytest.approx(log_q[row, chosen.token[row]].tolist())


def test_nucleus_keeps_the_smallest_set_with_its_mass() -> None:
    log_q = np.log([[0.5, 0.3, 0.15, 0.05]])
    law = SamplingParams(top_p=0.75)
    chosen = choose_candidates(np.arange(4, dtype=np.int32)[None], log_q, _parents(1, law, is_keyed=True), 4)
    assert sorted(chosen.token[0, chosen.log_promise[0] > -np.inf].tolist()) == [0, 1]


def test_greedy_targets_get_the_likeliest_tokens_whatever_the_noise() -> None:
    log_q = np.log([[0.2, 0.5, 0.3]])
    law = SamplingParams(temperature=0.0)
    chosen = choose_candidates(np.arange(3, dtype=np.int32)[None], log_q, _parents(1, law, is_keyed=True), 2)
    assert chosen.token.tolist() == [[1, 2]]
    assert np.exp(chosen.log_promise) == pytest.approx(np.array([[0.5, 0.3]]))


@given(st.floats(0, 1), st.integers(1, 16), st.booleans(), st.sampled_from([0.0, 1.0]))
def test_kinds_have_priors_near_their_promise(promise: float, depth: int, is_keyed: bool, temperature: float) -> None:
    priors = candidate_priors()
    parents = Parents(
        [SamplingParams(temperature=temperature)],
        np.array([is_keyed]),
        np.zeros(1, np.uint64),
        np.zeros(1, np.int64),
        np.array([depth], np.int32),
    )
    with np.errstate(divide="ignore"):
        log_q = np.log(np.array([[promise, (1 - promise) / 2]]))
    chosen: Candidates = choose_candidates(np.arange(2, dtype=np.int32)[None], log_q, parents, 2)
    assert (chosen.kind < priors.size).all()
    assert np.abs(priors.ravel()[chosen.kind] - np.exp(chosen.log_promise)).max() <= 0.5 / 12 + 1e-9
