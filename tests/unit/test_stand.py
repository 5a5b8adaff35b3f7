"""STAND: what is drafted from known tables, and what tables know after verify steps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.unit.gumbel_reference import gumbel_top_k
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.context_delta import ContextDelta, ScopeDelta, coalesce
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.gumbel import gumbel
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.stand_contexts import contexts_of_text
from tts_orch.policies.drafting.tree_shape import TreeShape, heap_tree
from tts_orch.records import FloatArray, IntArray, SamplingParams

VOCABULARY_SIZE = 12
SHAPE = heap_tree([0.5, 0.2, 0.1, 0.05], 60, 6)
Laws = tuple[IntArray, FloatArray]


def new_stand(shape: TreeShape = SHAPE, *, records_deltas: bool = False, **config: object) -> Stand:
    settings = {"table_entries": 1 << 12, "update_from_rejected": False, **config}
    return Stand(DraftingConfig(**settings), shape, records_deltas=records_deltas)


def table_of(text: IntArray, first: int, laws: Laws) -> NgramTable:
    """A table that was told the laws after positions `first`, `first + 1`, ..."""
    table = NgramTable(max_entries=1 << 12)
    observe(table, text, first, laws)
    return table


def observe(table: NgramTable, text: IntArray, first: int, laws: Laws) -> ContextDelta:
    n = len(laws[0])
    salts = np.full(n, table.open("scope"))
    contexts = table.observe(salts, contexts_of_text(text, first, n), *laws, returns_contexts=True)
    assert contexts is not None
    return contexts


def start(name: str, tokens: IntArray, law: SamplingParams | None = None, seed: int = 2**63 + 9) -> TrajectoryStart:
    return TrajectoryStart(name, tokens, "scope", seed, law or SamplingParams())


def random_text(generator: np.random.Generator, n: int) -> tuple[IntArray, Laws]:
    """A text and the law after each of its tokens, which depends on the last token alone."""
    tokens = generator.integers(0, VOCABULARY_SIZE, n).astype(np.int32)
    laws = generator.dirichlet(np.full(VOCABULARY_SIZE, 0.4), VOCABULARY_SIZE)
    ids = np.argsort(-laws, axis=1).astype(np.int32)
    probabilities = np.take_along_axis(laws, ids, axis=1).astype(np.float32)
    return tokens, (ids[tokens], probabilities[tokens])


def processed(probabilities: NDArray[np.float64], law: SamplingParams) -> NDArray[np.float64]:
    """The law that is drafted from, step by step; zeros stand for what was cut."""
    q = probabilities ** (1 / law.temperature)
    rank = np.arange(len(q))
    q = np.where((law.top_k == 0) | (rank < law.top_k), q, 0.0)
    q = q / q.sum()
    q = np.where(np.cumsum(q) - q < law.top_p, q, 0.0)
    q = np.where(q >= law.min_p * q.max(), q, 0.0)
    return np.asarray(q / q.sum())


laws = st.builds(
    SamplingParams,
    temperature=st.floats(0.3, 1.5),
    top_k=st.sampled_from([0, 3, 8]),
    top_p=st.sampled_from([0.6, 0.95, 1.0]),
    min_p=st.sampled_from([0.0, 0.05]),
)


@given(seed=st.integers(0, 2**32), law=laws, n_nodes=st.integers(0, 60), n_tokens=st.integers(1, 30))
@settings(max_examples=50, deadline=None)
def test_every_node_draws_its_children_by_the_keyed_rule(
    seed: int, law: SamplingParams, n_nodes: int, n_tokens: int
) -> None:
    tokens, (ids, probabilities) = random_text(np.random.default_rng(seed), n_tokens)
    stand = new_stand()
    stand.start(start("a", tokens, law, seed))
    stand.observe_prompt("a", 0, ids, probabilities)
    table = table_of(tokens, 0, (ids, probabilities))
    tree = stand.slots(["a"]).grow([n_nodes])[0]
    assert tree.token[0] == tokens[-1]
    assert tree.n_nodes <= n_nodes + 1
    wanted = {(SHAPE.parent[i], SHAPE.slot[i]): i for i in range(1, n_nodes + 1)}
    shape_of = {0: 0}
    for node in range(tree.n_nodes):
        path = [int(tree.token[i]) for i in tree.path(node)]
        found = table.lookup("scope", np.array([*tokens, *path], np.int32))
        n_wanted = sum(parent == shape_of[node] for parent, _ in wanted)
        if found is None or n_wanted == 0:
            assert not tree.children[node]
            continue
        order, known, raw = found
        q = processed(raw, law)
        with np.errstate(divide="ignore"):
            drawn = gumbel_top_k(np.log(q), gumbel(seed, len(tokens) + len(path), known), n_wanted)
        children = tree.children[node]
        assert tree.token[children].tolist() == known[drawn].tolist()
        np.testing.assert_allclose(tree.log_q[children], np.log(q[drawn]), rtol=1e-5, atol=1e-6)
        assert tree.slot[children].tolist() == list(range(len(children)))
        assert set(tree.source[children].tolist()) <= {order}
        assert set(tree.depth[children].tolist()) <= {len(path) + 1}
        shape_of |= {child: wanted[shape_of[node], slot] for slot, child in enumerate(children)}


def test_with_full_knowledge_first_children_are_the_tokens_to_come() -> None:
    generator = np.random.default_rng(3)
    tokens, (ids, probabilities) = random_text(generator, 4000)
    probabilities = np.where(np.arange(VOCABULARY_SIZE) < 10, probabilities, 0)  # what a table exposes
    seed, stand = 77, new_stand()
    stand.start(start("a", tokens, SamplingParams(temperature=0.8), seed))
    stand.observe_prompt("a", 0, ids, probabilities)
    tree = stand.slots(["a"]).grow([60])[0]
    law_after = {int(token): (i, p) for token, i, p in zip(tokens, ids, probabilities, strict=True)}
    text, node = tokens.tolist(), 0
    while tree.children[node]:
        ids_here, law = law_after[text[-1]]
        scores = np.log(law[:10]) / 0.8 + gumbel(seed, len(text), ids_here[:10])
        text.append(int(ids_here[np.argmax(scores)]))
        node = tree.children[node][0]
        assert tree.token[node] == text[-1]
    assert tree.depth[node] == 6


def test_greedy_takes_the_most_probable() -> None:
    tokens, (ids, probabilities) = random_text(np.random.default_rng(4), 500)
    stand = new_stand()
    stand.start(start("a", tokens, SamplingParams(temperature=0.0)))
    stand.observe_prompt("a", 0, ids, probabilities)
    table = table_of(tokens, 0, (ids, probabilities))
    tree = stand.slots(["a"]).grow([40])[0]
    assert tree.n_nodes == 41
    for node, children in enumerate(tree.children):
        found = table.lookup("scope", np.array([*tokens, *tree.token[tree.path(node)]], np.int32))
        assert found is not None
        assert tree.token[children].tolist() == found[1][: len(children)].tolist()
    assert tree.laws is None  # deterministic nodes


def test_nothing_known_gives_the_root_alone() -> None:
    stand = new_stand()
    stand.start(start("a", np.array([1, 2], np.int32)))
    stand.start(start("b", np.array([3], np.int32)))
    assert [tree.token.tolist() for tree in stand.slots(["b", "a"]).grow([255, 1000])] == [[3], [2]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_law_without_weight_drafts_nothing(temperature: float) -> None:
    stand = new_stand()
    stand.start(start("a", np.array([1], np.int32), SamplingParams(temperature=temperature)))
    stand.observe_prompt("a", 0, np.array([[5, 6]], np.int32), np.zeros((1, 2), np.float32))
    assert stand.slots(["a"]).grow([4])[0].n_nodes == 1


def run_steps(
    stand: Stand, name: str, text: IntArray, n_prompt: int, laws: Laws, generator: np.random.Generator
) -> None:
    """Commit the text after the prompt in steps of random length, through trees with rejected nodes and other laws."""
    position = n_prompt
    while position < len(text):
        committed = text[position : position + int(generator.integers(1, 5))]
        n = len(committed)
        wrong = generator.integers(0, VOCABULARY_SIZE, n)  # a rejected sibling before each accepted node
        below = [int(t) for pair in zip(wrong, committed, strict=True) for t in pair]
        tree = DraftTree.chain(int(text[position - 1]), below)
        tree.parent[1:] = np.arange(2 * n) // 2 * 2
        accepted = np.arange(2, 2 * n, 2, dtype=np.int32)  # the last committed token is the bonus token
        rows = np.concatenate(([0], accepted))
        law_ids = np.tile(np.arange(VOCABULARY_SIZE, dtype=np.int32), (tree.n_nodes, 1))
        law_probs = np.full((tree.n_nodes, VOCABULARY_SIZE), 1 / VOCABULARY_SIZE, np.float32)
        law_ids[rows], law_probs[rows] = (part[position - 1 : position - 1 + n] for part in laws)
        stand.observe([VerifiedStep(name, tree, accepted, committed, law_ids, law_probs)])
        position += n


def assert_same(one: ContextDelta, other: ContextDelta) -> None:
    for name in ("key", "order", "count", "start", "ids", "sums"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@given(seed=st.integers(0, 2**32), n_prompt=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_verified_positions_are_counted_once_each(seed: int, n_prompt: int) -> None:
    generator = np.random.default_rng(seed)
    text, (ids, probabilities) = random_text(generator, 40)
    stand = new_stand(records_deltas=True)
    stand.start(start("a", text[:n_prompt]))
    stand.observe_prompt("a", 0, ids[: n_prompt - 1], probabilities[: n_prompt - 1])
    run_steps(stand, "a", text, n_prompt, (ids, probabilities), generator)
    rows = slice(n_prompt - 1, -1)
    expected = observe(NgramTable(max_entries=1 << 12), text, n_prompt - 1, (ids[rows], probabilities[rows]))
    (delta,) = stand.drain()
    assert delta.scope == "scope"
    assert_same(delta.contexts, coalesce([expected]))
    assert stand.drain() == []


def test_cut_step_counts_no_row_beyond_what_was_committed() -> None:
    stand = new_stand(records_deltas=True)
    stand.start(start("a", np.array([1], np.int32)))
    tree = DraftTree.chain(1, [2, 3])
    laws = np.full((3, 1), 5, np.int32), np.ones((3, 1), np.float32)
    stand.observe([VerifiedStep("a", tree, np.array([1, 2], np.int32), np.array([2], np.int32), *laws)])
    (delta,) = stand.drain()
    assert delta.contexts.order.tolist() == [1]
    assert delta.contexts.count.tolist() == [1]


def test_trajectories_of_a_scope_share_and_go_their_own_way() -> None:
    generator = np.random.default_rng(5)
    text, laws = random_text(generator, 300)
    stand = new_stand()
    stand.start(start("a", text[:2]))
    run_steps(stand, "a", text, 2, laws, generator)
    stand.start(start("b", text))
    stand.start(start("c", text))
    grown = stand.slots(["a", "b", "c"]).grow([20, 20, 20])
    assert grown[0].n_nodes == 21
    assert all(tree.token.tolist() == grown[0].token.tolist() for tree in grown)
    longer = np.append(text, np.array([1, 2], np.int32))
    run_steps(stand, "b", longer, 300, (np.tile(laws[0], (2, 1)), np.tile(laws[1], (2, 1))), generator)
    stand.close("b")
    assert stand.slots(["a"]).grow([0])[0].token.tolist() == [text[-1]]


def test_closed_scope_hands_out_what_it_learned_and_forgets() -> None:
    generator = np.random.default_rng(6)
    text, laws = random_text(generator, 100)
    stand = new_stand(records_deltas=True)
    stand.start(start("a", text[:2]))
    run_steps(stand, "a", text, 2, laws, generator)
    stand.close("a")
    stand.close_scope("scope")
    stand.close_scope("scope")
    assert stand.scopes == frozenset()
    (delta,) = stand.drain()
    assert delta.contexts.n_contexts > 0
    stand.merge(delta)  # of a scope nobody uses
    stand.start(start("a", text))
    assert stand.slots(["a"]).grow([20])[0].n_nodes == 1
    stand.merge(delta)
    assert stand.slots(["a"]).grow([20])[0].n_nodes == 21


def test_reload_keeps_what_was_not_drained() -> None:
    generator = np.random.default_rng(7)
    text, laws = random_text(generator, 100)
    stand = new_stand(records_deltas=True)
    stand.start(start("a", text[:2]))
    run_steps(stand, "a", text[:50], 2, laws, generator)
    stand.drain()  # known to the store, hence part of what is reloaded
    run_steps(stand, "a", text, 50, laws, generator)
    told = observe(NgramTable(max_entries=1 << 12), text, 1, (laws[0][1:49], laws[1][1:49]))
    stand.reload(ScopeDelta("scope", coalesce([told])))
    expected = table_of(text, 1, (laws[0][1:99], laws[1][1:99]))
    for end in range(2, 99):
        for order in range(1, 5):
            context = text[max(0, end - order) : end]
            found, wanted = stand.table.lookup("scope", context), expected.lookup("scope", context)
            assert str(found) == str(wanted)
    assert stand.table.size - expected.size == 0
    (delta,) = stand.drain()
    assert coalesce([delta.contexts]).count.sum() == 4 * 50
