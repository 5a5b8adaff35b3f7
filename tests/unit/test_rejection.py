"""The rejection walk: exact laws by enumeration of all drafts, and the walk against a slow one that shares no code."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.exactness.reference import gumbel_row
from tests.strategies import sampling_params
from tts_orch.engine.laws import TrajectoryLaw, process
from tts_orch.engine.rejection import verify_by_rejection
from tts_orch.engine.sibling_trials import judge, judge_children
from tts_orch.engine.verification import Walk
from tts_orch.policies.drafting.draft_tree import DRAFTS_A_STEP, DraftLaws, DraftTree
from tts_orch.policies.drafting.gumbel import coins
from tts_orch.records import SamplingParams
from tts_orch.seeds import noise_words

_VOCABULARY = 6
_EOS = 4
_EXACT = 1e-12

Vector = NDArray[np.float64]
Slots = Sequence[tuple[int, int]]
"""Where each sibling comes from: the row of its law and -1, or -1 and its fixed token."""


def _tree(tokens: Sequence[int], rows: Sequence[int], laws: Vector) -> DraftTree:
    """Return a root with children that hold `tokens` and were drawn from these rows of `laws` `[m, V]`."""
    n = len(tokens)
    parent, depth, slot = [-1] + [0] * n, [0] + [1] * n, [0, *range(n)]
    log_q = [0.0] + [np.log(laws[row, token]) if row >= 0 else 0.0 for token, row in zip(tokens, rows, strict=True)]
    zeros = np.zeros(n + 1, np.int32)
    columns = [np.array(column, np.int32) for column in ([0, *tokens], parent, depth, slot)]
    ids = np.tile(np.arange(laws.shape[1], dtype=np.int32), (len(laws), 1))
    snapshot = DraftLaws(ids, laws, np.array([-1, *rows], np.int32))
    return DraftTree(*columns, np.array(log_q, np.float32), zeros, zeros, snapshot)


def _without(law: Vector, tokens: Sequence[int]) -> Vector:
    left = law.copy()
    left[list(tokens)] = 0
    return left / left.sum() if left.sum() > 0 else left


def _drafts(laws: Vector, slots: Slots) -> Iterator[tuple[float, list[int], list[int]]]:
    """Yield everything that can be drafted: its probability, tokens and rows; a slot whose law is used up stays empty."""
    drafts: list[tuple[float, list[int], list[int]]] = [(1.0, [], [])]
    for row, token in slots:
        longer = []
        for mass, tokens, rows in drafts:
            law = np.eye(laws.shape[1])[token] if row < 0 else _without(laws[row], tokens)
            longer += [(mass * law[x], [*tokens, int(x)], [*rows, row]) for x in np.flatnonzero(law)]
            longer += [] if law.any() else [(mass, tokens, rows)]
        drafts = longer
    yield from drafts


def _outcome(tokens: Sequence[int], acceptances: Vector, residual: Vector) -> Vector:
    """Return the law of the next token for one draft."""
    outcome, left = np.zeros(len(residual)), 1.0
    for token, acceptance in zip(tokens, acceptances, strict=True):
        outcome[token] += left * acceptance
        left *= 1 - acceptance
    return outcome + left * residual


def _output_law(p: Vector, drafts: Sequence[tuple[float, DraftTree]], dtype: torch.dtype = torch.float64) -> Vector:
    """Return the law of the next token over all drafts, as the production code decides."""
    with np.errstate(divide="ignore"):
        weights = torch.from_numpy(np.tile(np.log(p), (len(drafts), 1))).to(dtype)
    judged = judge_children([(tree, 0) for _, tree in drafts], weights)
    residuals = weights.softmax(dim=1).numpy()
    rows = zip(drafts, judged, residuals, strict=True)
    return np.sum([mass * _outcome(tree.token[tree.children[0]], *rest) for (mass, tree), *rest in rows], axis=0)


def _error(p: Vector, laws: Vector, slots: Slots) -> float:
    """Return the total variation between the target's law and that of the output."""
    drafts = [(mass, _tree(tokens, rows, laws)) for mass, tokens, rows in _drafts(laws, slots)]
    return _total_variation(p, _output_law(p, drafts))


def _total_variation(p: Vector, q: Vector) -> float:
    return float(np.abs(p - q).sum() / 2)


def _random_law(random: np.random.Generator, n_zeros: int) -> Vector:
    law = random.dirichlet(np.full(_VOCABULARY, 0.7))
    law[random.permutation(_VOCABULARY)[:n_zeros]] = 0
    return law / law.sum()


_SLOTS = st.lists(
    st.sampled_from([(0, -1), (0, -1), (1, -1)]) | st.integers(0, _VOCABULARY - 1).map(lambda token: (-1, token)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=80, deadline=None)
@given(slots=_SLOTS, zeros=st.lists(st.integers(0, 5), min_size=3, max_size=3), seed=st.integers(0, 2**32))
def test_any_siblings_leave_the_law_as_it_is(slots: Slots, zeros: list[int], seed: int) -> None:
    """Stochastic siblings of two laws, fixed ones, fixed ones that hold a token drawn before: in any order."""
    random = np.random.default_rng(seed)
    p, *laws = (_random_law(random, n_zeros) for n_zeros in zeros)
    assert _error(p, np.array(laws), slots) < _EXACT


@pytest.mark.parametrize("n_siblings", [1, 2, 3, 4])
@pytest.mark.parametrize("n_zeros", [0, 2, 4])
def test_siblings_of_one_law_leave_the_law_as_it_is(n_siblings: int, n_zeros: int) -> None:
    random = np.random.default_rng([n_siblings, n_zeros])
    for _ in range(10):
        p, q = _random_law(random, 1), _random_law(random, n_zeros)
        assert _error(p, q[None], [(0, -1)] * n_siblings) < _EXACT


def test_float32_weights_leave_the_law_as_it_is() -> None:
    random = np.random.default_rng(0)
    p, q = _random_law(random, 1), _random_law(random, 1)
    drafts = [(mass, _tree(tokens, rows, q[None])) for mass, tokens, rows in _drafts(q[None], [(0, -1)] * 3)]
    assert _total_variation(p, _output_law(p, drafts, torch.float32)) < 1e-6


@pytest.mark.parametrize("n_siblings", [1, 2, 3, 4])
def test_a_draft_from_the_target_itself_is_accepted(n_siblings: int) -> None:
    p = _random_law(np.random.default_rng(n_siblings), 2)
    assert _error(p, p[None], [(0, -1)] * n_siblings) < _EXACT
    for _, tokens, rows in _drafts(p[None], [(0, -1)] * n_siblings):
        with np.errstate(divide="ignore"):
            weights = torch.from_numpy(np.log(p[None]))
        assert judge_children([(_tree(tokens, rows, p[None]), 0)], weights)[0][0] == pytest.approx(1, abs=1e-15)
        assert (weights.softmax(dim=1) > 0).any()


@settings(max_examples=60, deadline=None)
@given(with_replacement=st.lists(st.integers(0, 1), min_size=2, max_size=3), seed=st.integers(0, 2**32))
def test_a_law_that_may_repeat_a_token_still_counts(with_replacement: list[int], seed: int) -> None:
    """A repeated token is rejected, and its law is taken off the residual all the same."""
    random = np.random.default_rng(seed)
    p, *laws = (_random_law(random, n_zeros) for n_zeros in (0, 1, 1))
    q, output = np.array(laws)[with_replacement], np.zeros(_VOCABULARY)
    for tokens in itertools.product(range(_VOCABULARY), repeat=len(q)):
        mass = np.prod([law[token] for law, token in zip(q, tokens, strict=True)])
        if mass == 0:
            continue
        acceptances, left = judge(np.log(p), -np.inf, np.array(tokens), q)
        for first, again in itertools.combinations(range(len(q)), 2):
            assert tokens[first] != tokens[again] or acceptances[first] == 1 or acceptances[again] == 0
        output += mass * _outcome(tokens, acceptances, np.exp(left) / np.exp(left).sum())
    assert _total_variation(p, output) < _EXACT


def test_copies_of_one_prefix_are_one_chance() -> None:
    p = np.array([0.4, 0.35, 0.25])
    tree = _tree([0, 1, 0, 1], [-1] * 4, np.zeros((0, 3)))
    weights = torch.from_numpy(np.log(p[None]))
    (acceptances,) = judge_children([(tree, 0)], weights)
    assert acceptances.tolist() == pytest.approx([0.4, 0.35 / 0.6, 0, 0])
    assert weights.softmax(dim=1)[0].tolist() == pytest.approx([0, 0, 1])


@pytest.mark.parametrize("n_siblings", [1, 3])
def test_without_noise_only_the_best_token_is_accepted(n_siblings: int) -> None:
    random = np.random.default_rng(n_siblings)
    laws, best = np.array([_random_law(random, 1), np.eye(_VOCABULARY)[2]]), np.eye(_VOCABULARY)[3]
    for slots in itertools.product([(0, -1), (1, -1), (-1, 1), (-1, 3)], repeat=n_siblings):
        for _, tokens, rows in _drafts(laws, slots):
            with np.errstate(divide="ignore"):
                weights = torch.from_numpy(np.log(best[None]))
            (acceptances,) = judge_children([(_tree(tokens, rows, laws), 0)], weights)
            assert all(acceptances[i] == (token == 3) for i, token in enumerate(tokens) if 3 not in tokens[:i])
            assert 3 in tokens or int(weights.argmax()) == 3


def test_a_node_without_children_is_left_alone() -> None:
    weights = torch.log(torch.tensor([[0.2, 0.8], [0.5, 0.5]], dtype=torch.float64))
    before = weights.clone()
    nodes = [(DraftTree.root_only(0), 0), (DraftTree.chain(0, [1]), 0)]
    judged = judge_children(nodes, weights)
    assert [len(acceptances) for acceptances in judged] == [0, 1]
    assert torch.equal(weights[0], before[0])
    assert weights[1, 1] == -torch.inf


# Rules that look right and are not: the enumeration above must be able to see them.

Keep = Callable[[Vector, int, int], bool]


def _error_of_dropping(keep: Keep) -> float:
    """Return the mean error where a drawn child stays only if `keep(law, token, rank)`."""
    errors, random = [], np.random.default_rng(0)
    for _ in range(20):
        p, q = _random_law(random, 0), _random_law(random, 0)
        drafts = []
        for mass, tokens, rows in _drafts(q[None], [(0, -1)] * 3):
            kept = [token for rank, token in enumerate(tokens) if keep(q, token, rank)]
            drafts.append((mass, _tree(kept, rows[: len(kept)], q[None])))
        errors.append(_total_variation(p, _output_law(p, drafts)))
    return float(np.mean(errors))


def test_a_drawn_child_must_not_be_dropped_for_its_own_probability() -> None:
    assert _error_of_dropping(lambda law, token, rank: law[token] > 0.15) > 0.02
    assert _error_of_dropping(lambda law, token, rank: rank < 2) < _EXACT
    assert _error_of_dropping(lambda law, token, rank: rank < 1 or law.max() < 0.5) < _EXACT


def _error_of_claim(draw_law: Callable[[Vector], Vector], claimed_law: Callable[[Vector], Vector]) -> float:
    """Return the mean error where two siblings are drawn from one law and said to be from another."""
    errors, random = [], np.random.default_rng(0)
    for _ in range(20):
        p, q = _random_law(random, 0), _random_law(random, 0)
        claim = claimed_law(q)[None]
        drafts = [
            (mass, _tree(tokens, rows, claim)) for mass, tokens, rows in _drafts(draw_law(q)[None], [(0, -1)] * 2)
        ]
        errors.append(_total_variation(p, _output_law(p, drafts)))
    return float(np.mean(errors))


def test_the_law_that_is_told_must_be_the_law_of_the_draw() -> None:
    def at_temperature(q: Vector) -> Vector:
        return q ** (1 / 0.6) / (q ** (1 / 0.6)).sum()

    def best(q: Vector) -> Vector:
        """Nearly all on the best token, then on the second best."""
        rank = np.argsort(np.argsort(-q))
        return 1e-9**rank / (1e-9**rank).sum()

    assert _error_of_claim(at_temperature, at_temperature) < _EXACT
    assert _error_of_claim(at_temperature, lambda q: q) > 0.02
    assert _error_of_claim(best, lambda q: q) > 0.1


# The walk.


def _random_tree(random: np.random.Generator, max_nodes: int) -> DraftTree:
    """Return a tree whose nodes' children are drawn from one or two laws, or fixed, or both."""
    token, parent, depth, slot, of_node = [int(random.integers(_VOCABULARY))], [-1], [0], [0], [-1]
    laws: list[Vector] = []
    for node in itertools.count():
        if node == len(token) or len(token) > max_nodes:
            break
        rows = [-1, len(laws), len(laws) + 1]
        laws += [_random_law(random, int(random.integers(0, 4))) for _ in range(2)]
        siblings: list[int] = []
        for row in random.choice(rows, int(random.integers(0, 4))):
            law = _without(laws[row] if row >= 0 else np.ones(_VOCABULARY), siblings)
            if law.any():
                siblings.append(int(random.choice(_VOCABULARY, p=law)))
                of_node.append(int(row))
        token += siblings
        parent += [node] * len(siblings)
        depth += [depth[node] + 1] * len(siblings)
        slot += range(len(siblings))
    zeros = np.zeros(len(token), np.int32)
    ids = np.array([random.permutation(_VOCABULARY) for _ in laws] or np.zeros((0, 1)), np.int32)
    probs = np.array([law[order] for law, order in zip(laws, ids, strict=True)] or np.zeros((0, 1)))
    columns = [np.array(column, np.int32) for column in (token, parent, depth, slot)]
    snapshot = DraftLaws(ids, probs, np.array(of_node, np.int32))
    return DraftTree(*columns, zeros.astype(np.float32), zeros, zeros, snapshot)


def _walk(tree: DraftTree, params: SamplingParams, seed: int, first_row: int = 0, verify_step: int = 0) -> Walk:
    law = TrajectoryLaw(params, (_EOS,), tree.token[:1].tolist(), _VOCABULARY)
    return Walk(tree, law, seed, 10, first_row, verify_step)


def _coins(seed: int, position: int, n: int) -> Vector:
    high, low = (noise_words(seed, position, np.arange(n), plane).astype(np.uint64) for plane in (2, 3))
    return ((high << np.uint64(21)) + (low >> np.uint64(11))) / 2.0**53


def _follow(walk: Walk, logits: torch.Tensor) -> tuple[list[int], list[int]]:
    """Return the nodes and tokens of a walk that writes out every law in full."""
    tree, nodes, tokens = walk.tree, [0], []
    while True:
        node = nodes[-1]
        position = walk.verify_step * DRAFTS_A_STEP + node
        p = process(logits[walk.first_row + node][None], [walk.law], [tokens])[0].softmax(-1).numpy()
        children = np.flatnonzero(tree.parent == node)
        for rank, (child, coin) in enumerate(zip(children, _coins(walk.seed, position, len(children)), strict=True)):
            q, row = np.zeros(_VOCABULARY), tree.laws.of_node[child]  # type: ignore[union-attr]
            if row < 0:
                q[tree.token[child]] = 1
            else:
                q[tree.laws.ids[row]] = tree.laws.probs[row]  # type: ignore[union-attr]
                q = _without(q, tree.token[children[:rank]])
            if coin * q[tree.token[child]] < p[tree.token[child]]:
                nodes.append(int(child))
                tokens.append(int(tree.token[child]))
                break
            p = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
        else:
            with np.errstate(divide="ignore"):
                drawn = np.log(p) + (0 if walk.law.is_greedy else gumbel_row(walk.seed, position, _VOCABULARY))
            return nodes, [*tokens, int(np.argmax(drawn))]


@settings(max_examples=100, deadline=None)
@given(params=st.lists(sampling_params(_VOCABULARY), min_size=4, max_size=4), seed=st.integers(0, 2**31))
def test_walk_visits_what_a_slow_walk_visits(params: list[SamplingParams], seed: int) -> None:
    random = np.random.default_rng(seed)
    trees = [_random_tree(random, 20) for _ in params]
    starts = np.cumsum([0, *(tree.n_nodes for tree in trees)]).tolist()
    logits = torch.from_numpy(random.normal(size=(starts[-1], _VOCABULARY)))
    walks = [_walk(tree, params[i], seed + i, starts[i], verify_step=i) for i, tree in enumerate(trees)]
    verify_by_rejection(walks, logits)
    for walk in walks:
        assert (walk.nodes, walk.tokens) == _follow(walk, logits)


def test_walks_reach_all_depths() -> None:
    """The comparison above must not be one of roots alone."""
    random, depths = np.random.default_rng(0), []
    for seed in range(200):
        walk = _walk(_random_tree(random, 30), SamplingParams(), seed)
        verify_by_rejection([walk], torch.from_numpy(random.normal(size=(walk.tree.n_nodes, _VOCABULARY))))
        depths.append(len(walk.nodes) - 1)
    assert min(np.bincount(depths)[:4]) > 5


def test_raw_logits_are_left_alone() -> None:
    logits = torch.randn(3, _VOCABULARY, generator=torch.Generator().manual_seed(0))
    before = logits.clone()
    verify_by_rejection([_walk(DraftTree.chain(0, [1, 2]), SamplingParams(), 0)], logits)
    assert torch.equal(logits, before)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_walk_ends_where_nothing_can_be_drawn(temperature: float) -> None:
    logits = torch.full((6, _VOCABULARY), -1e4, dtype=torch.float64)
    logits[[0, 1, 3, 4, 5], [1, 2, 1, 2, 3]] = 1e4
    logits[1] = torch.nan
    params = SamplingParams(temperature=temperature)
    walks = [_walk(DraftTree.chain(0, [1, 2]), params, i, first_row=3 * i) for i in range(2)]
    verify_by_rejection(walks, logits)
    assert (walks[0].nodes, walks[0].tokens) == ([0, 1], [1, -1])
    assert (walks[1].nodes, walks[1].tokens) == ([0, 1, 2], [1, 2, 3])


def test_coins_are_the_words_of_planes_that_nothing_else_reads() -> None:
    for seed, position in ((0, 0), (2**64 - 1, 5), (7, 2**32 - 1)):
        tossed = coins(seed, position, 11)
        assert tossed.tolist() == _coins(seed, position, 11).tolist()
        assert tossed.min() >= 0
        assert tossed.max() < 1


def test_coins_are_fair() -> None:
    """Mean of 40 000 uniforms within 4 standard errors; neighbours do not go together."""
    tossed = np.array([coins(3, position, 4) for position in range(10_000)])
    assert abs(tossed.mean() - 0.5) < 4 * np.sqrt(1 / 12 / tossed.size)
    assert np.abs(np.corrcoef(tossed.T) - np.eye(4)).max() < 0.04
