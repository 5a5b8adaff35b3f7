"""Neural drafters say what their networks would without caches, batches and trees."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from tests.neural_toys import HEAD_KINDS, FakeEngine, reference_laws, toy_facts, toy_network
from tests.toys import VOCABULARY_SIZE, toy_llama, toy_qwen2
from tts_orch.config import DraftingConfig
from tts_orch.drafters.causal_lm import CausalLM
from tts_orch.drafters.level_seconds import LevelSeconds
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.target_facts import TargetFacts, target_facts
from tts_orch.engine.target import Target
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth
from tts_orch.records import SamplingParams

_KINDS = (*HEAD_KINDS, "lm")
_CONFIG = DraftingConfig(draft_depth=3, draft_width=4)
_GREEDY = SamplingParams(temperature=0.0)


@cache
def _facts() -> TargetFacts:
    return toy_facts()


def _engine(kind: str, config: DraftingConfig = _CONFIG) -> tuple[FakeEngine, NeuralDrafter]:
    drafter = NeuralDrafter(toy_network(kind, _facts()), config)
    return FakeEngine(drafter, toy_llama()), drafter


def _text(n: int, seed: int = 0) -> list[int]:
    return np.random.default_rng([seed, n]).integers(3, VOCABULARY_SIZE, n).tolist()


def _assert_right(kind: str, engine: FakeEngine, name: str, tree: DraftTree, n_children: int = 4) -> None:
    """Each node has the log-probability of a network that reads its path anew, and the root's children are the likeliest."""
    tokens = engine.tokens[name]
    assert tree.token[0] == tokens[-1]
    assert tree.n_nodes > 1
    for node in range(1, tree.n_nodes):
        path = tree.token[tree.path(node)]
        law = reference_laws(kind, engine, _facts(), tokens, path[:-1])
        assert tree.log_q[node] == pytest.approx(float(law[path[-1]]), abs=1e-5), (name, node)
    first = reference_laws(kind, engine, _facts(), tokens, np.zeros(0, np.int32)).topk(n_children).indices.tolist()
    children = tree.token[tree.children[0]].tolist()
    assert children == first[: len(children)]


@pytest.mark.parametrize("kind", _KINDS)
def test_batches_of_uneven_lengths_draft_what_single_texts_would(kind: str) -> None:
    engine, _ = _engine(kind)
    random = np.random.default_rng(0)
    for number, n in enumerate((2, 3, 9, 30, 9)):
        engine.start(f"t{number}", _text(n, number), _GREEDY)
    names = list(engine.tokens)
    for step in range(5):
        some = names if step != 2 else names[1:3]  # the others rest, and catch up
        trees = engine.draft(some, 14)
        for name, tree in zip(some, trees, strict=True):
            _assert_right(kind, engine, name, tree)
            leaf = int(random.integers(0, tree.n_nodes))
            engine.commit(name, tree, tree.path(leaf), int(random.integers(3, VOCABULARY_SIZE)))
        for name in set(names) - set(some):
            for _ in range(3):
                engine.commit(name, DraftTree.root_only(engine.tokens[name][-1]), [], 7)


@pytest.mark.parametrize("kind", _KINDS)
def test_texts_that_begin_alike_are_read_once(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, drafter = _engine(kind)
    rows: list[int] = []
    network = drafter._network
    read = network.read

    def counted(token_ids: torch.Tensor, *rest: object) -> object:
        rows.append(token_ids.numel())
        return read(token_ids, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(network, "read", counted)
    for name in ("a", "b", "c"):
        engine.start(name, _text(40), _GREEDY)
    engine.draft(["a", "b", "c"], 4)
    assert rows[:2] == [40 - network.first_token, 3], "one text, and the last row of each"
    rows.clear()
    engine.start("later", [*_text(40), 5], _GREEDY)
    (tree,) = engine.draft(["later"], 4)
    assert rows[0] < 4
    _assert_right(kind, engine, "later", tree)
    engine.commit("a", DraftTree.root_only(engine.tokens["a"][-1]), [], 11)
    (tree,) = engine.draft(["a"], 4)
    _assert_right(kind, engine, "a", tree)


@pytest.mark.parametrize("kind", _KINDS)
def test_closed_texts_help_those_that_go_on_from_them(kind: str) -> None:
    engine, drafter = _engine(kind)
    engine.start("parent", _text(30), _GREEDY)
    (tree,) = engine.draft(["parent"], 8)
    engine.commit("parent", tree, tree.path(tree.n_nodes - 1), 9)
    engine.draft(["parent"], 8)
    engine.close("parent")
    for name, more in (("x", [4, 5]), ("y", [6])):
        engine.start(name, [*engine.tokens["parent"], *more], _GREEDY)
    assert drafter._shared.find(np.array(engine.tokens["x"], np.int32), drafter._network.first_token).n_rows >= 30
    for name, tree in zip("xy", engine.draft(["x", "y"], 8), strict=True):
        _assert_right(kind, engine, name, tree)


@pytest.mark.parametrize("kind", _KINDS)
def test_texts_beyond_the_context_get_no_draft(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, drafter = _engine(kind)
    monkeypatch.setattr(drafter._network, "max_context", 20)
    engine.start("long", _text(18), _GREEDY)
    engine.start("short", _text(17), _GREEDY)
    long, short = engine.draft(["long", "short"], 6)
    assert long.n_nodes == 1
    _assert_right(kind, engine, "short", short)
    engine.commit("short", short, short.path(1), 3)
    assert [tree.n_nodes for tree in engine.draft(["short", "long"], 6)] == [1, 1]


def test_padding_is_within_the_context() -> None:
    """A model with learned positions has no row for a position behind its last one."""
    shape = GPT2Config(vocab_size=VOCABULARY_SIZE, n_positions=32, n_embd=16, n_layer=1, n_head=2)
    model = GPT2LMHeadModel(shape).eval().requires_grad_(False)
    engine = FakeEngine(NeuralDrafter(CausalLM(model, VOCABULARY_SIZE), _CONFIG), toy_llama())
    for name, n in (("long", 27), ("short", 2)):
        engine.start(name, _text(n), _GREEDY)
    engine.draft(["long", "short"], 6)
    engine.commit("long", DraftTree.root_only(engine.tokens["long"][-1]), [], 7)
    for _ in range(20):  # while it rests
        engine.commit("short", DraftTree.root_only(engine.tokens["short"][-1]), [], 7)
    assert all(tree.n_nodes > 1 for tree in engine.draft(["long", "short"], 6))


def test_a_text_of_one_token_has_no_feature_to_go_on_from() -> None:
    engine, _ = _engine("head")
    engine.start("short", [5], _GREEDY)
    (tree,) = engine.draft(["short"], 6)
    assert tree.n_nodes == 1
    engine.commit("short", tree, [], 8)
    (tree,) = engine.draft(["short"], 6)
    _assert_right("head", engine, "short", tree)


def test_long_catch_ups_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_orch.drafters.padded_texts._MOST_ROWS", 10)
    for kind in _KINDS:
        engine, _ = _engine(kind)
        for name, n in (("a", 23), ("b", 31), ("c", 4)):
            engine.start(name, _text(n), _GREEDY)
        for name, tree in zip("abc", engine.draft(["a", "b", "c"], 6), strict=True):
            _assert_right(kind, engine, name, tree)


def _growth(drafter: NeuralDrafter, price: float, n_trees: int, max_depth: int = 8) -> Growth:
    seconds = np.arange(200, dtype=np.float64)
    return Growth(drafter.priors.ravel(), seconds, n_trees, price, np.full(n_trees, 20), np.full(n_trees, max_depth))


def _grow(engine: FakeEngine, drafter: NeuralDrafter, price: float, max_depth: int = 8) -> list[DraftTree]:
    for name, n in (("a", 12), ("b", 20)):
        engine.start(name, _text(n), _GREEDY)
    engine.draft(["a", "b"], 1)
    return drafter.slots(["a", "b"]).grow_while_paying(_growth(drafter, price, 2, max_depth))


def test_free_nodes_are_all_drafted_and_dear_ones_not() -> None:
    engine, drafter = _engine("lm")
    free = _grow(engine, drafter, price=0.0)
    assert [tree.n_nodes for tree in free] == [21, 21]
    assert max(tree.depth.max() for tree in free) == _CONFIG.draft_depth
    assert [tree.n_nodes for tree in _grow(engine, drafter, price=2.0)] == [1, 1]
    shallow = _grow(engine, drafter, price=0.0, max_depth=1)
    assert max(tree.depth.max() for tree in shallow) == 1


def test_levels_that_take_too_long_are_not_drafted() -> None:
    engine, drafter = _engine("lm")
    for n_rows in range(1, 20):
        drafter._seconds.observe(n_rows, 1e6)
    trees = _grow(engine, drafter, price=1e-3)
    assert max(tree.depth.max() for tree in trees) == 1


def test_costs_of_levels_are_averages_of_like_sizes() -> None:
    seconds = LevelSeconds()
    assert seconds.estimate(3).tolist() == [0, 0, 0, 0]
    seconds.observe(5, 1.0)
    seconds.observe(40, 9.0)
    assert seconds.estimate(7).tolist() == [0, 0.25, 0.5, 0.5, 1, 1, 1, 1]
    assert seconds.estimate(130)[[8, 16, 31, 32, 64, 130]].tolist() == [2, 4.5, 4.5, 9, 18, 36]
    seconds.observe(6, 2.0)
    assert 1.0 < seconds.estimate(7)[7] < 2.0


@pytest.mark.parametrize("kind", HEAD_KINDS)
def test_heads_draft_for_targets_in_half_precision_that_share_their_embedding(kind: str) -> None:
    facts = target_facts(Target(toy_qwen2(torch.bfloat16), numerics="fast", name="half"))
    engine = FakeEngine(NeuralDrafter(toy_network(kind, facts), _CONFIG), toy_qwen2(torch.bfloat16))
    for name, n in (("a", 12), ("b", 5)):
        engine.start(name, _text(n), _GREEDY)
    for tree in engine.draft(["a", "b"], 10):
        assert tree.n_nodes == 11
        assert np.isfinite(tree.log_q).all()
        assert set(tree.token[1:].tolist()) <= set(HEAD_KINDS[kind].get("ids", range(VOCABULARY_SIZE)))
