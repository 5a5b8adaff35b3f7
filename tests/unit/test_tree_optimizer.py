"""Learned trees: counting by place, and the best closed sets against brute force and Sequoia's dynamic program."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sequoia import sequoia
from tts_orch.policies.drafting.draft_tree import DraftTree, VerifiedStep
from tts_orch.policies.drafting.tree_optimizer import SlotCounts, optimize
from tts_orch.policies.drafting.tree_shape import TreeShape, heap_tree

SHAPE = heap_tree((0.5, 0.2, 0.1), 12, 4)


@st.composite
def counted_trees(draw: st.DrawFn, max_nodes: int = 9) -> tuple[TreeShape, np.ndarray]:
    """A static tree and counts that never rise from parent to child, but may rise from sibling to sibling."""
    parent, slot, depth, count = [-1], [0], [0], [draw(st.integers(1, 40))]
    n_children = [0]
    for _ in range(draw(st.integers(0, max_nodes))):
        above = draw(st.integers(0, len(parent) - 1))
        parent.append(above)
        slot.append(n_children[above])
        depth.append(depth[above] + 1)
        count.append(draw(st.integers(0, count[above])))
        n_children[above] += 1
        n_children.append(0)
    columns = (np.array(column, np.int32) for column in (parent, slot, depth))
    return TreeShape(*columns, np.array(count) / count[0]), np.array(count, np.int64)


def closed_sets(shape: TreeShape) -> list[frozenset[int]]:
    """All sets of nodes below the root that hold with a node its parent and its earlier siblings."""
    places = list(zip(shape.parent.tolist(), shape.slot.tolist(), strict=True))
    sets = [frozenset[int]()]
    for node in range(1, len(places)):
        parent, slot = places[node]
        needed = places.index((parent, slot - 1)) if slot else parent
        sets += [chosen | {node} for chosen in sets if needed == 0 or needed in chosen]
    return sets


def best_by_size(shape: TreeShape, counts: np.ndarray) -> list[int]:
    best = [-1] * len(counts)
    for chosen in closed_sets(shape):
        best[len(chosen)] = max(best[len(chosen)], int(counts[list(chosen)].sum()))
    return best


@given(counted_trees())
@settings(max_examples=200, deadline=None)
def test_whatever_a_node_costs_a_prefix_is_the_best_tree(counted: tuple[TreeShape, np.ndarray]) -> None:
    shape, counts = counted
    _, kept = optimize(shape, counts, len(counts))
    costs = np.outer(np.arange(0, 41, 0.25), np.arange(len(counts)))
    best = (best_by_size(shape, counts) - costs).max(axis=1)
    assert (np.cumsum(kept) - kept[0] - costs).max(axis=1) == pytest.approx(best)


@given(counted_trees(max_nodes=6))
@settings(deadline=None)
def test_no_closed_order_has_a_larger_sum_of_prefixes(counted: tuple[TreeShape, np.ndarray]) -> None:
    shape, counts = counted
    worth = {frozenset[int](): 0}
    for chosen in sorted(closed_sets(shape), key=len):
        for node in chosen:
            before = chosen - {node}
            if before in worth:
                value = worth[before] + int(counts[list(chosen)].sum())
                worth[chosen] = max(worth.get(chosen, 0), value)
    _, kept = optimize(shape, counts, len(counts))
    assert np.cumsum(kept[1:]).sum() == worth[frozenset(range(1, len(counts)))]


@given(counted_trees(max_nodes=30), st.integers(0, 31))
def test_what_is_kept_is_closed(counted: tuple[TreeShape, np.ndarray], n_nodes: int) -> None:
    shape, counts = counted
    learned, kept = optimize(shape, counts, n_nodes)
    assert len(learned.parent) == len(kept) == min(n_nodes + 1, len(counts))
    assert learned.value.tolist() == (kept / counts[0]).tolist()
    seen = [0] * len(kept)
    for node in range(1, len(kept)):
        parent = learned.parent[node]
        assert 0 <= parent < node
        assert learned.depth[node] == learned.depth[parent] + 1
        assert learned.slot[node] == seen[parent]
        seen[parent] += 1


@given(counted_trees(max_nodes=20))
def test_where_siblings_do_not_rise_every_prefix_is_best(counted: tuple[TreeShape, np.ndarray]) -> None:
    shape, counts = counted
    for node in range(1, len(counts)):  # the smallest of parent, earlier siblings and itself
        earlier = [i for i in range(1, node) if shape.parent[i] == shape.parent[node]]
        counts[node] = min(counts[[shape.parent[node], *earlier, node]])
    _, kept = optimize(shape, counts, len(counts))
    assert kept[1:].tolist() == sorted(counts[1:].tolist(), reverse=True)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3))
@settings(max_examples=50, deadline=None)
def test_prefixes_are_as_good_as_the_dynamic_program(weights: list[int]) -> None:
    """Ranks may be accepted in any order: counts of the full tree, exact integers."""
    depth, total = (3 if len(weights) < 3 else 2), sum(weights) + 1
    shape, counts = full_tree(weights, total, depth)
    _, kept = optimize(shape, counts, len(counts))
    lengths = np.cumsum(kept) / kept[0]
    best = np.array([sequoia([weight / total for weight in weights], n, depth) for n in range(len(counts))])
    costs = np.outer(np.arange(0, 1, 0.01), np.arange(len(counts)))
    assert (lengths <= best + 1e-12).all()
    assert (lengths - costs).max(axis=1) == pytest.approx((best - costs).max(axis=1))
    if weights == sorted(weights, reverse=True):
        assert lengths == pytest.approx(best)


def full_tree(weights: list[int], total: int, max_depth: int) -> tuple[TreeShape, np.ndarray]:
    parent, slot, depth, count = [-1], [0], [0], [total**max_depth]
    for above, level in enumerate(depth):  # grows while it is read
        if level < max_depth:
            for rank, weight in enumerate(weights):
                parent.append(above)
                slot.append(rank)
                depth.append(level + 1)
                count.append(count[above] * weight // total)
    columns = (np.array(column, np.int32) for column in (parent, slot, depth))
    return TreeShape(*columns, np.array(count) / count[0]), np.array(count, np.int64)


def verified(slots: list[int], parents: list[int], accepted: list[int]) -> VerifiedStep:
    """A verify step of a tree in which nothing but the places of its nodes is of interest."""
    zeros, laws = np.zeros(len(slots), np.int32), np.zeros((len(slots), 1))
    tree = DraftTree(zeros, np.array(parents, np.int32), zeros, np.array(slots, np.int32), laws[:, 0], zeros, zeros)
    path = np.array(accepted, np.int32)
    return VerifiedStep("a/0", tree, path, np.zeros(len(path) + 1, np.int32), laws.astype(np.int32), laws)


def test_acceptance_is_counted_by_place() -> None:
    shape = TreeShape(
        *(np.array(c, np.int32) for c in ([-1, 0, 1, 0, 3], [0, 0, 0, 1, 0], [0, 1, 2, 1, 2])), np.ones(5)
    )
    counts = SlotCounts(shape)
    whole = [0, 0, 0, 1, 0], [-1, 0, 1, 0, 3]
    without_first_grandchild = [0, 0, 1, 0], [-1, 0, 0, 2]
    counts.add([verified(*whole, [3, 4]), verified(*whole, [1])])
    counts.add([verified(*without_first_grandchild, [2, 3]), verified([0], [-1], [])])
    assert counts.accepted.tolist() == [4, 1, 0, 2, 2]
    assert counts.verify_steps == 4


def test_trees_of_another_shape_are_not_counted() -> None:
    with pytest.raises(KeyError):
        SlotCounts(SHAPE).add([verified([0, 0, 1], [-1, 0, 0], [2]), verified([0, 9], [-1, 0], [1])])


def test_a_rich_later_sibling_brings_its_earlier_one_along() -> None:
    parent, slot, depth = [-1, 0, 0, 0, 1], [0, 0, 1, 2, 0], [0, 1, 1, 1, 2]
    shape = TreeShape(*(np.array(column, np.int32) for column in (parent, slot, depth)), np.ones(5))
    learned, kept = optimize(shape, np.array([20, 4, 9, 3, 3]), 4)
    assert kept.tolist() == [20, 4, 9, 3, 3]
    assert learned.parent.tolist() == [-1, 0, 0, 0, 1]
    learned, kept = optimize(shape, np.array([20, 4, 0, 9, 3]), 2)
    assert kept.tolist() == [20, 4, 0]  # 13 in 3 before 3 in 1, although the bundle is cut
    assert learned.slot.tolist() == [0, 0, 1]


def test_a_bundle_takes_in_all_that_raises_its_average() -> None:
    parent, slot, depth = [-1, 0, 0, 1, 1, 4], [0, 0, 1, 0, 1, 0], [0, 1, 1, 2, 2, 3]
    shape = TreeShape(*(np.array(column, np.int32) for column in (parent, slot, depth)), np.ones(6))
    _, kept = optimize(shape, np.array([20, 10, 5, 0, 9, 8]), 5)
    assert kept.tolist() == [20, 10, 0, 9, 8, 5]  # 17 in 3 before 5 in 1, though 9 in 2 would come after it


def test_slots_of_equal_worth_keep_their_order() -> None:
    n = len(SHAPE.parent)
    learned, _ = optimize(SHAPE, np.array([5] + [0] * (n - 1)), n)
    assert learned.parent.tolist() == SHAPE.parent.tolist()
    assert learned.slot.tolist() == SHAPE.slot.tolist()


def test_without_verify_steps_there_is_nothing_to_learn() -> None:
    with pytest.raises(ValueError, match="no verify step"):
        optimize(SHAPE, SlotCounts(SHAPE).accepted, 4)
