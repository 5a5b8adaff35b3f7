"""Token Recycling: the fixed tree, and rows against a dictionary of last writes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_tree import Drafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.token_recycling import LEVEL_SIZES, RANK_ACCEPTANCE, TokenRecycling, levelled_tree
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import FloatArray, IntArray, SamplingParams

VOCABULARY_SIZE = 12
Laws = tuple[IntArray, FloatArray]


def start(name: str, tokens: Sequence[int], scope: str = "scope") -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), scope, 0, SamplingParams())


def laws(rows: Sequence[Sequence[int]], n_ids: int = 3) -> Laws:
    """Laws with these ids, most probable first; an empty row is no law."""
    ids, probabilities = np.zeros((len(rows), n_ids), np.int32), np.zeros((len(rows), n_ids), np.float32)
    for i, row in enumerate(rows):
        ids[i, : len(row)], probabilities[i, : len(row)] = row, 0.5 ** np.arange(1, len(row) + 1)
    return ids, probabilities


def commit(drafter: Drafter, name: str, tree: DraftTree, committed: Sequence[int], learned: Laws) -> None:
    accepted = np.zeros(0, np.int32)
    drafter.observe([VerifiedStep(name, tree, accepted, np.array(committed, np.int32), *learned)])


def grow(drafter: Drafter, name: str, n_nodes: int = 80) -> DraftTree:
    return drafter.slots([name]).grow([n_nodes])[0]


def assert_valid_at_every_size(shape: TreeShape) -> None:
    assert (np.diff(shape.value) <= 0).all()
    seen = {(-1, 0)}
    for node, (parent, slot) in enumerate(zip(shape.parent.tolist(), shape.slot.tolist(), strict=True)):
        assert node == 0 or 0 <= parent < node
        assert slot == 0 or (parent, slot - 1) in seen
        seen.add((parent, slot))


def test_the_default_tree() -> None:
    shape = levelled_tree(RANK_ACCEPTANCE, LEVEL_SIZES)
    assert np.bincount(shape.depth).tolist() == [1, *LEVEL_SIZES] == [1, 8, 21, 25, 15, 8, 3]
    assert_valid_at_every_size(shape)
    values = shape.value[shape.parent[1:]] * np.array(RANK_ACCEPTANCE)[shape.slot[1:]]
    np.testing.assert_allclose(shape.value[1:], values)


@given(
    acceptance=st.lists(st.floats(0.01, 1), min_size=1, max_size=4).map(lambda rates: sorted(rates, reverse=True)),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_levels_take_the_most_valuable_children(acceptance: list[float], sizes: list[int]) -> None:
    shape = levelled_tree(acceptance, sizes)
    assert_valid_at_every_size(shape)
    for depth, size in enumerate(sizes, start=1):
        above, level = shape.value[shape.depth == depth - 1], shape.value[shape.depth == depth]
        children = np.sort(np.outer(above, acceptance).ravel())[::-1]
        np.testing.assert_allclose(np.sort(level)[::-1], children[:size])


def test_children_are_the_candidates_of_their_parents_token() -> None:
    drafter = TokenRecycling(VOCABULARY_SIZE)
    drafter.start(start("a", [5, 6, 7]))
    drafter.observe_prompt("a", 0, *laws([[6, 7], [7, 5, 4]]))
    commit(drafter, "a", DraftTree.root_only(7), [6], laws([[6]]))
    tree = grow(drafter, "a")
    paths = [[int(tree.token[i]) for i in tree.path(node)] for node in range(tree.n_nodes)]
    assert tree.token[0] == 6
    assert [path for path in paths if len(path) == 1] == [[7], [5], [4]]  # after 6
    assert {tuple(path) for path in paths if len(path) == 2} == {(7, 6), (5, 6), (5, 7)}  # 4 was never seen
    assert (tree.source[1:] == 1).all()
    assert tree.kind.tolist() == tree.slot.tolist()
    assert len(drafter.priors) == 8


def test_rejected_nodes_teach_and_the_last_node_counts() -> None:
    drafter = TokenRecycling(VOCABULARY_SIZE)
    assert drafter.learns_from_rejected
    drafter.start(start("a", [1]))
    chain = DraftTree.chain(1, [2, 3, 2, 4])
    commit(drafter, "a", chain, [2], laws([[9], [8], [7], [6, 5], []]))
    tree = grow(drafter, "a")
    assert tree.token[tree.depth == 1].tolist() == [6, 5]
    commit(drafter, "a", DraftTree.root_only(2), [3], laws([[]]))
    assert grow(drafter, "a").token.tolist() == [3, 7]
    commit(drafter, "a", DraftTree.root_only(3), [4], laws([[]]))
    assert grow(drafter, "a").n_nodes == 1


def fill(shape: TreeShape, rows: dict[int, list[int]], root: int, n_nodes: int) -> list[tuple[int, ...]]:
    """The definition: paths of the nodes, in the shape's order."""
    paths: dict[int, tuple[int, ...]] = {0: ()}
    for place in range(1, len(shape.parent)):
        above, slot = paths.get(int(shape.parent[place])), int(shape.slot[place])
        if above is None or len(paths) > n_nodes:
            continue
        row = rows.get((root, *above)[-1], [])
        if slot < len(row):
            paths[place] = (*above, row[slot])
    return list(paths.values())


rows_of_ids = st.lists(st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=10, unique=True), min_size=1, max_size=12)


@given(
    prompt=rows_of_ids,
    steps=st.lists(rows_of_ids, max_size=4),
    seed=st.integers(0, 99),
    n_nodes=st.integers(0, 90),
)
@settings(deadline=None)
def test_equals_a_dictionary_of_last_writes(
    prompt: list[list[int]], steps: list[list[list[int]]], seed: int, n_nodes: int
) -> None:
    generator = np.random.default_rng(seed)
    shape = levelled_tree(RANK_ACCEPTANCE, LEVEL_SIZES)
    drafter, rows = TokenRecycling(VOCABULARY_SIZE, shape), dict[int, list[int]]()
    text = generator.integers(0, VOCABULARY_SIZE, len(prompt) + 1).tolist()
    drafter.start(start("a", text))
    drafter.observe_prompt("a", 0, *laws(prompt, 10))
    rows.update((token, row[:8]) for token, row in zip(text, prompt, strict=False) if row)
    for step in steps:
        tokens = generator.integers(0, VOCABULARY_SIZE, len(step)).tolist()
        text.append(int(generator.integers(VOCABULARY_SIZE)))
        commit(drafter, "a", DraftTree.chain(tokens[0], tokens[1:]), text[-1:], laws(step, 10))
        rows.update((token, row[:8]) for token, row in zip(tokens, step, strict=True) if row)
    tree = grow(drafter, "a", n_nodes)
    paths = [tuple(tree.token[tree.path(node)].tolist()) for node in range(tree.n_nodes)]
    assert paths == fill(shape, rows, text[-1], n_nodes)
    assert tree.depth.tolist() == [len(path) for path in paths]
    for children in tree.children:
        assert tree.slot[children].tolist() == list(range(len(children)))


def test_scopes_and_closing() -> None:
    drafter = TokenRecycling(VOCABULARY_SIZE)
    drafter.start(start("a", [1, 2], "one"))
    drafter.observe_prompt("a", 0, *laws([[3]]))
    drafter.start(start("b", [1, 2, 1], "one"))
    drafter.start(start("c", [2, 1], "two"))
    assert [tree.token.tolist() for tree in drafter.slots(["b", "c"]).grow([80, 80])] == [[1, 3], [1]]
    drafter.close("a")
    drafter.start(start("d", [1], "one"))
    assert grow(drafter, "d").token.tolist() == [1, 3]
    drafter.close_scope("one")
    drafter.start(start("e", [1], "one"))
    assert grow(drafter, "e").n_nodes == 1
    assert grow(drafter, "d").n_nodes == 2  # it runs on with what it knew


def test_a_prefix_of_the_tree_is_the_smaller_tree() -> None:
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, VOCABULARY_SIZE, 60)
    drafter = TokenRecycling(VOCABULARY_SIZE)
    drafter.start(start("a", tokens.tolist()))
    drafter.observe_prompt("a", 0, *laws([generator.permutation(VOCABULARY_SIZE)[:8].tolist() for _ in tokens[1:]], 8))
    whole = grow(drafter, "a")
    assert whole.n_nodes == 81
    for n_nodes in (0, 1, 17, 64):
        small = grow(drafter, "a", n_nodes)
        assert small.n_nodes == n_nodes + 1
        for column in ("token", "parent", "depth", "slot", "source", "kind"):
            np.testing.assert_array_equal(getattr(small, column), getattr(whole, column)[: n_nodes + 1])
