"""Best-first growth of STAND's trees: what is drawn, what pays, and what rejection drafts may not look at."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth, TrajectoryStart
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.tree_shape import heap_tree
from tts_orch.records import SamplingParams

SHAPE = heap_tree([0.5, 0.2, 0.1, 0.05], 60, 6)
N_TOKENS = 4


def _stand(seed: int, names: list[str], *, is_keyed: bool, first_seed: int = 0, **config: object) -> Stand:
    """Trajectories on a table that knows a random law after every token but the last."""
    generator = np.random.default_rng(seed)
    laws = generator.dirichlet(np.full(N_TOKENS, 0.7), N_TOKENS)
    ids = np.argsort(-laws, axis=1).astype(np.int32)
    stand = Stand(DraftingConfig(table_entries=1 << 10, **config), SHAPE)
    text = np.tile(np.arange(N_TOKENS - 1), 3).astype(np.int32)
    for i, name in enumerate(names):
        stand.start(TrajectoryStart(name, text, "scope", first_seed + i, SamplingParams(), is_keyed))
    stand.observe_prompt(names[0], 0, ids[text], np.take_along_axis(laws, ids, axis=1)[text].astype(np.float32))
    return stand


def _growth(stand: Stand, n: int, price: float, max_nodes: int = 20, max_depth: int = 5, cap: int = 60) -> Growth:
    return Growth(
        rates=stand.priors.ravel(),
        seconds=np.arange(n + cap + 1, dtype=np.float64),
        other_rows=n,
        tokens_per_second=price,
        max_nodes=np.full(n, max_nodes, np.int64),
        max_depth=np.full(n, max_depth, np.int64),
    )


def _worths(stand: Stand, tree: DraftTree) -> list[float]:
    rates, worths = stand.priors.ravel(), [1.0]
    for node in range(1, tree.n_nodes):
        worths.append(worths[int(tree.parent[node])] * float(rates[tree.kind[node]]))
    return worths[1:]


@given(seed=st.integers(0, 2**32), is_keyed=st.booleans(), price=st.floats(0.02, 0.6))
@settings(max_examples=40, deadline=None)
def test_every_node_pays_and_none_that_pays_is_left(seed: int, is_keyed: bool, price: float) -> None:
    stand = _stand(seed, ["a", "b"], is_keyed=is_keyed)
    trees = stand.slots(["a", "b"]).grow_while_paying(_growth(stand, 2, price))
    everything = _stand(seed, ["a", "b"], is_keyed=is_keyed).slots(["a", "b"])
    larger = everything.grow_while_paying(_growth(stand, 2, 0.0))
    for tree, whole in zip(trees, larger, strict=True):
        worths = _worths(stand, tree)
        assert all(worth > price for worth in worths)
        if is_keyed and whole.n_nodes <= 20:  # without a limit on nodes
            n_paying = sum(worth > price for worth in _worths(stand, whole))
            assert n_paying == len(worths) or _has_later_rise(stand, whole)


def _has_later_rise(stand: Stand, tree: DraftTree) -> bool:
    """Whether a later sibling has the better rate: it waits for the earlier one."""
    rates = stand.priors.ravel()[tree.kind]
    return any(rates[after] > rates[before] for children in tree.children for before, after in pairwise(children))


@given(seed=st.integers(0, 2**32), is_keyed=st.booleans())
@settings(max_examples=30, deadline=None)
def test_trees_keep_to_their_limits(seed: int, is_keyed: bool) -> None:
    stand = _stand(seed, ["a", "b", "c"], is_keyed=is_keyed)
    growth = _growth(stand, 3, 0.0, max_nodes=7, max_depth=2, cap=15)
    trees = stand.slots(["a", "b", "c"]).grow_while_paying(growth)
    assert all(tree.n_nodes - 1 <= 7 and tree.depth.max() <= 2 for tree in trees)
    assert sum(tree.n_nodes - 1 for tree in trees) <= 15
    for tree in trees:
        assert all(tree.parent[node] < node for node in range(1, tree.n_nodes))
        for children in tree.children:
            assert tree.slot[children].tolist() == list(range(len(children)))
            assert len(set(tree.token[children].tolist())) == len(children)


def test_best_first_draws_what_the_fixed_shape_draws() -> None:
    """The same noise, so a node of both trees is the same token."""
    for is_keyed in (True, False):
        grown = [
            _stand(5, ["a"], is_keyed=is_keyed).slots(["a"]).grow([60])[0],
            (stand := _stand(5, ["a"], is_keyed=is_keyed))
            .slots(["a"])
            .grow_while_paying(_growth(stand, 1, 0.0, 60))[0],
        ]
        roots = [[tree.token[child] for child in tree.children[0]] for tree in grown]
        assert roots[0][:3] == roots[1][:3]
        assert (grown[1].laws is None) == is_keyed


def test_a_step_of_the_cost_curve_is_filled_or_left_alone() -> None:
    stand = _stand(3, ["a"], is_keyed=True)
    growth = _growth(stand, 1, 1.0)
    growth.seconds[:] = np.where(np.arange(len(growth.seconds)) <= 1, 0.0, 0.9)  # the first node pays for all
    (tree,) = stand.slots(["a"]).grow_while_paying(growth)
    assert tree.n_nodes - 1 == 20
    growth.seconds[:] = np.where(np.arange(len(growth.seconds)) <= 1, 0.0, 50.0)
    (tree,) = stand.slots(["a"]).grow_while_paying(growth)
    assert tree.n_nodes == 1


Choice = tuple[int, int] | None
"""Parent and rank of the next slot, None for the end."""


def _violations(is_keyed: bool, n_seeds: int) -> int:
    """Count the histories of drawn tokens after which two runs went on differently."""
    following: dict[tuple[tuple[int, int, int], ...], set[Choice]] = {}
    for seed in range(n_seeds):
        stand = _stand(11, ["a"], is_keyed=is_keyed, first_seed=seed)
        (tree,) = stand.slots(["a"]).grow_while_paying(_growth(stand, 1, 0.12, max_nodes=3))
        drawn = list(zip(tree.parent.tolist(), tree.slot.tolist(), tree.token.tolist(), strict=True))[1:]
        for n in range(len(drawn) + 1):
            choice = drawn[n][:2] if n < len(drawn) else None
            following.setdefault(tuple(drawn[:n]), set()).add(choice)
    assert len(following) > 20  # all histories were met: 4 tokens, 3 nodes
    return sum(len(choices) > 1 for choices in following.values())


def test_a_rejection_slot_is_chosen_without_a_look_at_its_token() -> None:
    """Enumeration of all draws: what is drawn next is a function of what was drawn before, and nothing is taken back."""
    assert _violations(is_keyed=False, n_seeds=1500) == 0


def test_the_enumeration_sees_a_choice_that_looks() -> None:
    assert _violations(is_keyed=True, n_seeds=1500) > 0


def test_rejection_draws_of_two_steps_share_no_noise() -> None:
    stand = _stand(2, ["a"], is_keyed=False)
    first, second = (stand.slots(["a"]).grow([40])[0].token.tolist() for _ in range(2))
    assert first != second
    keyed = _stand(2, ["a"], is_keyed=True)
    first, second = (keyed.slots(["a"]).grow([40])[0].token.tolist() for _ in range(2))
    assert first == second


@pytest.mark.parametrize("ranked", [False, True])
def test_laws_travel_with_rejection_drafts(ranked: bool) -> None:
    stand = _stand(4, ["a"], is_keyed=False)
    source = stand.slots(["a"])
    (tree,) = source.grow_while_paying(_growth(stand, 1, 0.0)) if ranked else source.grow([30])
    assert tree.laws is not None
    assert tree.laws.of_node[0] == -1
    for node in range(1, tree.n_nodes):
        ids, probs = tree.laws.ids[tree.laws.of_node[node]], tree.laws.probs[tree.laws.of_node[node]]
        assert probs.sum() == pytest.approx(1)
        place = ids[probs > 0].tolist().index(int(tree.token[node]))
        assert tree.log_q[node] == pytest.approx(np.log(probs[place]), abs=1e-6)
