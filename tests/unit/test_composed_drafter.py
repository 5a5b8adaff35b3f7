"""A composed drafter: numbering of kinds, who is asked and told, what is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import draft_trees
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.composed_features import columns_of, union_of_layers
from tts_orch.policies.drafting.composed_kinds import SOURCES, ComposedKinds, member_of_source
from tts_orch.policies.drafting.draft_tree import (
    DraftLaws,
    DraftTree,
    Features,
    Growth,
    SlotSource,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.drafting.text_drafter import TextDrafter
from tts_orch.policies.routing.confidence import ConfidenceRouting
from tts_orch.policies.routing.first_steps import FirstStepsRouting
from tts_orch.policies.routing.merged import ConcatenatedRouting, MergedRouting
from tts_orch.policies.routing.routing import Routing
from tts_orch.records import SamplingParams

_ROOT = 5


class _Text:
    """Drafts one chain over and over."""

    def __init__(self, tokens: Sequence[int], log_q: float) -> None:
        self._tokens = tokens
        self._log_q = log_q
        self._last = 0

    def append(self, token_ids: Sequence[int]) -> None:
        self._last = token_ids[-1]

    def draft(self, n_nodes: int) -> DraftTree:
        tree = DraftTree.chain(self._last, self._tokens[:n_nodes], source=1, kind=1)
        log_q = np.full(tree.n_nodes, self._log_q, np.float32)
        log_q[0] = 0
        return replace(tree, log_q=log_q)


class _Chain(TextDrafter):
    """A member that always drafts the same tokens, as sure as it is told to be."""

    priors = np.array([0.2, 0.7, 0.4])

    def __init__(self, *tokens: int, probability: float = 0.5, layers: tuple[int, ...] = ()) -> None:
        super().__init__()
        self._tokens = tokens
        self._log_q = float(np.log(probability))
        self.layers = layers
        self.asked: list[list[TrajectoryId]] = []
        self.steps: list[VerifiedStep] = []
        self.features: list[Features] = []

    @property
    def feature_layers(self) -> tuple[int, ...]:
        return self.layers

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        self.features.append(features)

    def model(self, start: TrajectoryStart) -> _Text:
        return _Text(self._tokens, self._log_q)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        self.asked.append(list(trajectories))
        return super().slots(trajectories)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        super().observe(steps)
        self.steps += steps


class _Clock:
    """A second passes whenever somebody looks."""

    def __init__(self) -> None:
        self._ticks: Iterator[float] = iter(np.arange(1000.0))

    def __call__(self) -> float:
        return next(self._ticks)


def _start(trajectory: str = "a", domain: str = "", temperature: float = 0.0) -> TrajectoryStart:
    tokens, law = np.array([9, _ROOT], np.int32), SamplingParams(temperature=temperature)
    return TrajectoryStart(trajectory, tokens, "scope", 1, law, True, domain)


def _compose(members: dict[str, _Chain], routing: type[Routing] = ConfidenceRouting) -> ComposedDrafter:
    return ComposedDrafter(members, routing(list(members)), _Clock())


def _step(tree: DraftTree, committed: Sequence[int], trajectory: str = "a") -> VerifiedStep:
    accepted, node = [], 0
    for token in committed[:-1]:
        (node,) = (child for child in tree.children[node] if tree.token[child] == token)
        accepted.append(node)
    laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
    return VerifiedStep(trajectory, tree, np.array(accepted, np.int32), np.array(committed, np.int32), *laws)


# Numbers.

tables = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=3)


@settings(deadline=None)
@given(tables, st.data())
def test_every_kind_of_every_member_has_a_number_of_its_own(shapes: list[tuple[int, int]], data: st.DataObject) -> None:
    own = [np.linspace(0.1, 0.9, a * b).reshape(a, b) + 0.01 * i for i, (a, b) in enumerate(shapes)]
    kinds = ComposedKinds(own)
    numbers: set[int] = set()
    for member, table in enumerate(own):
        everything = DraftTree.chain(0, range(table.size))
        everything = replace(everything, kind=np.array([0, *range(table.size)], np.int32))
        composed = kinds.composed(member, everything, kinds.priors.ravel())
        np.testing.assert_array_equal(kinds.priors.ravel()[composed.kind[1:]], table.ravel())
        numbers |= set(composed.kind[1:].tolist())
    assert len(numbers) == sum(table.size for table in own)
    rates = np.arange(kinds.priors.size, dtype=np.float64)
    member = data.draw(st.integers(0, len(own) - 1))
    tree = data.draw(draft_trees())
    tree = replace(tree, kind=(tree.token % own[member].size).astype(np.int32))
    composed = kinds.composed(member, tree, np.maximum(rates, 0.1))
    np.testing.assert_array_equal(kinds.own_rates(member, rates)[tree.kind[1:]], rates[composed.kind[1:]])


@settings(deadline=None)
@given(st.integers(0, 5), draft_trees(), st.integers(0, 40))
def test_a_source_names_its_member(member: int, tree: DraftTree, own: int) -> None:
    kinds = ComposedKinds([np.array([0.5])] * 6)
    tree = replace(tree, source=np.full(tree.n_nodes, own, np.int32))
    composed = kinds.composed(member, tree, kinds.priors.ravel())
    assert composed.source[0] == 0
    assert all(member_of_source(source) == member for source in composed.source[1:].tolist())
    assert (composed.source[1:] % SOURCES == own % SOURCES).all()


def test_nodes_without_a_law_are_as_likely_as_their_kind() -> None:
    kinds = ComposedKinds([np.array([0.9]), np.array([0.3, 0.6])])
    tree = replace(DraftTree.chain(0, [1, 2]), kind=np.array([0, 1, 0], np.int32))
    composed = kinds.composed(1, tree, kinds.priors.ravel())
    assert np.exp(composed.log_q) == pytest.approx([1.0, 0.6, 0.3])


def test_nodes_that_noise_chose_promise_what_their_kind_does_and_the_law_says_who_is_sure() -> None:
    """The less likely token of the law is the one that the verifier is going to draw."""
    members = {"sure": _Chain(1, probability=0.9), "right": _Chain(3, 4, probability=0.1)}
    members["sure"].priors = np.array([0.2, 0.3, 0.4])
    for temperature, routing, token in (
        (0.0, ConfidenceRouting, 1),
        (0.0, MergedRouting, 1),
        (0.8, ConfidenceRouting, 1),
        (0.8, MergedRouting, 3),
    ):
        drafter = _compose(members, routing)
        drafter.start(_start(temperature=temperature))
        (tree,) = drafter.slots(["a"]).grow([1])
        assert tree.token.tolist() == [_ROOT, token]


def test_a_node_without_a_law_is_as_likely_under_noise_as_without() -> None:
    kinds = ComposedKinds([np.array([0.3, 0.6])])
    tree = replace(DraftTree.chain(0, [1, 2]), kind=np.array([0, 1, 0], np.int32))
    composed = kinds.composed(0, tree, kinds.priors.ravel(), is_noisy=True)
    assert composed.log_promise is not None
    assert np.exp(composed.log_promise) == pytest.approx([1.0, 0.6, 0.3])
    np.testing.assert_array_equal(composed.log_q, composed.log_promise)
    kept = composed.subtree(np.array([True, True, False])).log_promise
    assert kept is not None
    assert kept.tolist() == composed.log_promise[:2].tolist()


def test_drawn_drafts_are_refused() -> None:
    kinds = ComposedKinds([np.array([0.5])])
    laws = DraftLaws(np.zeros((1, 1), np.int32), np.ones((1, 1)), np.array([-1, 0], np.int32))
    with pytest.raises(ValueError, match="deterministically"):
        kinds.composed(0, replace(DraftTree.chain(0, [1]), laws=laws), kinds.priors.ravel())


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(-1, 3), max_size=3, unique=True).map(tuple), min_size=1, max_size=3))
def test_members_get_the_columns_they_want(members: list[tuple[int, ...]]) -> None:
    layers = union_of_layers(members)
    assert len(set(layers)) == len(layers)
    states = {layer: 10.0 * layer + np.arange(6.0).reshape(3, 2) for layer in range(-1, 4)}
    features = np.concatenate([np.zeros((3, 0)), *(states[layer] for layer in layers)], axis=1)
    for wanted in filter(None, members):
        expected = np.concatenate([states[layer] for layer in wanted], axis=1)
        np.testing.assert_array_equal(columns_of(features, layers, wanted), expected)


# Drafting.


def test_the_surer_tree_is_verified_and_everybody_learns() -> None:
    members = {"one": _Chain(1, 2, probability=0.4), "other": _Chain(3, 4, probability=0.6)}
    drafter = _compose(members)
    drafter.start(_start())
    (tree,) = drafter.slots(["a"]).grow([4])
    assert tree.token.tolist() == [_ROOT, 3, 4]
    assert {member_of_source(source) for source in tree.source[1:].tolist()} == {1}
    drafter.observe([_step(tree, [3, 8])])
    assert all(len(member.steps) == 1 for member in members.values())
    assert drafter.slots(["a"]).grow([4])[0].token[0] == 8


def test_merged_trees_keep_within_the_nodes_of_one() -> None:
    members = {"one": _Chain(1, 2, 3, probability=0.9), "other": _Chain(1, 5, probability=0.5)}
    drafter = _compose(members, MergedRouting)
    drafter.start(_start())
    (tree,) = drafter.slots(["a"]).grow([3])
    assert tree.token.tolist() == [_ROOT, 1, 2, 3]
    (tree,) = drafter.slots(["a"]).grow([4])
    assert sorted(tree.token.tolist()) == [1, 2, 3, _ROOT, 5]


def test_concatenated_trees_share_the_nodes_out() -> None:
    members = {"one": _Chain(1, 2, 3, 4, probability=0.9), "other": _Chain(5, 6, 7, 8, probability=0.1)}
    drafter = _compose(members, ConcatenatedRouting)
    drafter.start(_start())
    (tree,) = drafter.slots(["a"]).grow([5])
    assert sorted(tree.token[1:].tolist()) == [1, 2, 5, 6]


def _growth(drafter: ComposedDrafter, n: int, room: int) -> Growth:
    return Growth(
        rates=drafter.priors.ravel().copy(),
        seconds=np.ones(n + 64) + 0.01 * np.arange(n + 64),
        other_rows=n,
        tokens_per_second=20.0,
        max_nodes=np.full(n, 8),
        max_depth=np.full(n, room),
    )


def test_nodes_that_do_not_pay_stay_out() -> None:
    """A node costs 0.2 tokens here; along a chain of 0.7 the fifth promises less."""
    drafter = _compose({"one": _Chain(1, 2, 3, 4, 5, 6), "other": _Chain(9)}, MergedRouting)
    for trajectory in "ab":
        drafter.start(_start(trajectory))
    trees = drafter.slots(["a", "b"]).grow_while_paying(_growth(drafter, 2, room=10))
    assert [sorted(tree.token[1:].tolist()) for tree in trees] == [[1, 2, 3, 4, 9]] * 2
    trees = drafter.slots(["a", "b"]).grow_while_paying(_growth(drafter, 2, room=2))
    assert [sorted(tree.token[1:].tolist()) for tree in trees] == [[1, 2, 9]] * 2


def test_members_are_compared_by_what_would_be_verified_of_them_alone() -> None:
    """What a member drafts beyond that costs no pass, and makes no tree surer."""
    members = {"long": _Chain(1, 2, 3, 4, 5, 6, probability=0.6), "short": _Chain(8, 9, probability=0.75)}
    drafter = _compose(members)
    drafter.start(_start())
    (tree,) = drafter.slots(["a"]).grow_while_paying(_growth(drafter, 1, room=10))
    assert tree.token.tolist() == [_ROOT, 8, 9], "1.312 tokens; the long one 1.306, whole it would be 1.430"
    drafter.observe([_step(tree, [7])])
    tallies = {member: tally for (_, member), tally in drafter.take_report().tallies.items()}
    assert tallies["long"].confidence == pytest.approx(sum([0.6, 0.6**2, 0.6**3, 0.6**4]))


def test_members_grow_by_their_own_rates() -> None:
    """Stand, which grows slot by slot, is the second member; its rates must not be the first one's."""
    stand = make_drafter(DraftingConfig(drafter="stand", table_entries=1024), vocabulary_size=64)
    assert stand is not None
    drafter = ComposedDrafter({"chain": _Chain(60, probability=0.1), "stand": stand}, MergedRouting(["chain", "stand"]))
    text = np.tile(np.arange(8, dtype=np.int32), 6)
    start = replace(_start(), token_ids=text)
    drafter.start(start)
    ids, probs = np.roll(text, -1)[:-1, None], np.ones((len(text) - 1, 1), np.float32)
    drafter.observe_prompt("a", 0, ids, probs)
    budget = NodeBudget(drafter.priors, lambda rows: 10.0 + 0.1 * rows, 8)
    budget._newest = 8
    (tree,) = budget.draft(drafter.slots(["a"]), np.array([8]), other_rows=0, n_roots=1)
    assert tree.token[tree.source >= SOURCES].tolist()[:3] == [0, 1, 2]
    step = _step(tree, [0, 1, 2, 3])
    drafter.observe([step])
    budget.observe([step])
    assert drafter.take_report().tallies["", "stand"].accepted >= 3


def test_who_is_not_asked_pays_nothing_and_keeps_up() -> None:
    members = {"one": _Chain(1, probability=0.4), "other": _Chain(3, probability=0.6)}
    drafter = ComposedDrafter(members, FirstStepsRouting(list(members), 2, 100))
    for trajectory in "ab":
        drafter.start(_start(trajectory))
    for _ in range(6):
        trees = drafter.slots(["a", "b"]).grow([2, 2])
        drafter.observe([_step(tree, [7], name) for tree, name in zip(trees, "ab", strict=True)])
    assert len(members["one"].asked) == 2
    assert len(members["other"].asked) == 6
    assert len(members["one"].steps) == 12


class _Asynchronous(_Chain):
    def __init__(self, *tokens: int, probability: float) -> None:
        super().__init__(*tokens, probability=probability)
        self.requested: list[list[TrajectoryId]] = []

    def request(self, trajectories: Sequence[TrajectoryId]) -> None:
        self.requested.append(list(trajectories))


def test_what_is_asked_for_ahead_of_time_is_what_drafts() -> None:
    members = {"one": _Chain(1, probability=0.4), "other": _Asynchronous(3, probability=0.6)}
    routing = FirstStepsRouting(list(members), 1, 1)
    drafter = ComposedDrafter(members, routing)
    drafter.start(_start())
    for _ in range(4):
        drafter.request(["a"])
        (tree,) = drafter.slots(["a"]).grow([2])
        drafter.observe([_step(tree, [7])])
    assert members["other"].requested == members["other"].asked
    assert len(members["one"].asked) == 2


def test_features_reach_whom_they_concern() -> None:
    members = {"one": _Chain(1, layers=(2, -1)), "plain": _Chain(2), "other": _Chain(3, layers=(-1,))}
    drafter = _compose(members)
    drafter.start(_start())
    assert drafter.feature_layers == (2, -1)
    drafter.observe_features("a", 0, np.array([[1.0, 2.0, 3.0, 4.0]]))
    assert members["one"].features[0].tolist() == [[1.0, 2.0, 3.0, 4.0]]
    assert members["other"].features[0].tolist() == [[3.0, 4.0]]
    assert members["plain"].features == []


# Counting.


def test_reports_count_what_every_member_would_have_had_accepted() -> None:
    members = {"one": _Chain(3, 4, 6, probability=0.5), "other": _Chain(3, 4, 5, probability=0.8)}
    drafter = _compose(members)
    drafter.start(_start(domain="math"))
    (tree,) = drafter.slots(["a"]).grow([4])
    drafter.observe([_step(tree, [3, 4, 6])])
    report = drafter.take_report()
    one, other = report.tallies["math", "one"], report.tallies["math", "other"]
    assert (one.steps, one.accepted) == (1, 3)
    assert (other.steps, other.accepted) == (1, 2)
    assert other.confidence == pytest.approx(0.8 + 0.8**2 + 0.8**3)
    assert drafter.take_report().tallies == {}


def test_steps_without_drafts_are_not_counted() -> None:
    """Where drafting rests the members are told what was committed all the same."""
    members = {"one": _Chain(1), "other": _Chain(2)}
    drafter = _compose(members)
    drafter.start(_start())
    drafter.observe([_step(DraftTree.root_only(_ROOT), [7])])
    assert drafter.take_report().tallies == {}
    assert drafter.slots(["a"]).grow([1])[0].token[0] == 7


def test_compositions_nest() -> None:
    inner = _compose({"one": _Chain(1, 2, probability=0.9), "other": _Chain(3, 4, probability=0.8)}, MergedRouting)
    members = {"first": _Chain(6, probability=0.1), "third": _Chain(1, 5, probability=0.7), "pair": inner}
    drafter = ComposedDrafter(members, MergedRouting(list(members)))
    drafter.start(_start())
    (tree,) = drafter.slots(["a"]).grow([8])
    assert sorted(tree.token[1:].tolist()) == [1, 2, 3, 4, 5, 6]
    assert {member_of_source(source) for source in tree.source[1:].tolist()} == {0, 1, 2}
    drafter.observe([_step(tree, [1, 5, 7])])
    accepted = {key[1]: tally.accepted for key, tally in drafter.take_report().tallies.items()}
    assert accepted == {"first": 0, "pair": 1, "third": 2}
    assert {key[1]: tally.accepted for key, tally in inner.take_report().tallies.items()} == {"one": 1, "other": 0}
    counts = {name: n for name, n in drafter.statistics().items() if "accepted" in name}
    assert counts == {"nodes_accepted_by_first": 0, "nodes_accepted_by_third": 1, "nodes_accepted_by_pair": 1}
