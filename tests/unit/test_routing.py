"""Routings between drafters: who is asked in which step, whose tree is verified, and what is learned."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.config import DraftingConfig
from tts_orch.drafting_config import RoutingName
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.routing.assignment import Assignment
from tts_orch.policies.routing.confidence import ConfidenceRouting
from tts_orch.policies.routing.entropy import EntropyRouting
from tts_orch.policies.routing.expected_tokens import ExpectedTokensRouting
from tts_orch.policies.routing.first_steps import FirstStepsRouting
from tts_orch.policies.routing.hindsight import chosen_in_hindsight
from tts_orch.policies.routing.problem import ProblemRouting
from tts_orch.policies.routing.registry import make_routing
from tts_orch.policies.routing.report import MemberTally, RoutingReport
from tts_orch.policies.routing.routing import Routing, StepOutcome
from tts_orch.policies.routing.tree_confidence import confidence, mean_entropy, path_log_promises
from tts_orch.records import SamplingParams

_PAIR = ("math", "chat")


def _chain(*probabilities: float) -> DraftTree:
    tree = DraftTree.chain(0, range(1, len(probabilities) + 1))
    return replace(tree, log_q=np.log([1.0, *probabilities]).astype(np.float32))


def _start(trajectory: str = "a", scope: str = "problem", drafter: str = "") -> TrajectoryStart:
    return TrajectoryStart(trajectory, np.zeros(1, np.int32), scope, 1, SamplingParams(), drafter=drafter)


def _ask(routing: Routing, trees: Mapping[str, DraftTree], trajectory: str = "a", cost: float = 1.0) -> list[str]:
    """Take one step and return who drafted in it."""
    asked = list(routing.drafting(trajectory, routing.members, lambda n_nodes: cost))
    routing.combine(trajectory, {member: trees[member] for member in asked}, 8)
    return asked


# How sure a tree is.


def test_confidence_is_how_many_tokens_a_law_expects_to_be_accepted() -> None:
    tree = replace(
        DraftTree.chain(0, [1, 2, 3]),
        parent=np.array([-1, 0, 1, 0], np.int32),
        log_q=np.log([1.0, 0.5, 0.4, 0.2]).astype(np.float32),
    )
    assert np.exp(path_log_promises(tree)) == pytest.approx([1.0, 0.5, 0.2, 0.2])
    assert confidence(tree) == pytest.approx(0.9)
    assert confidence(DraftTree.root_only(0)) == 0.0


def test_entropy_is_that_of_the_laws_above_the_nodes() -> None:
    """Two of the root's candidates with a rest of 0.25, and one certain child below the first."""
    tree = replace(
        DraftTree.chain(0, [1, 2, 3]),
        parent=np.array([-1, 0, 0, 1], np.int32),
        log_q=np.log([1.0, 0.5, 0.25, 1.0]).astype(np.float32),
    )
    root = -0.5 * math.log(0.5) - 2 * 0.25 * math.log(0.25)
    assert mean_entropy(tree) == pytest.approx((root + root + 0.0) / 3)
    assert mean_entropy(DraftTree.root_only(0)) == math.inf


@settings(deadline=None)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=8))
def test_confidence_and_entropy_are_in_range(probabilities: list[float]) -> None:
    tree = _chain(*probabilities)
    assert 0.0 < confidence(tree) <= len(probabilities) + 1e-5
    assert 0.0 <= mean_entropy(tree) <= math.log(2) + 1e-6


# Routings.


def test_confidence_takes_the_surest_tree_and_the_first_of_equals() -> None:
    routing = ConfidenceRouting(_PAIR)
    trees = {"math": _chain(0.5, 0.5), "chat": _chain(0.6, 0.5)}
    assert routing.combine("a", trees, 8) is trees["chat"]
    trees["chat"] = _chain(0.5, 0.5)
    assert routing.combine("a", trees, 8) is trees["math"]


@pytest.mark.parametrize("routing", ["confidence", "first_steps", "problem"])
def test_a_tree_that_was_cut_short_is_none_the_surer_for_it(routing: RoutingName) -> None:
    """A budget leaves one node of the unsure drafter's tree, which in the mean is likelier than those of the sure one's."""
    config = DraftingConfig(drafter="stand").model_copy(update={"routing": routing, "routing_steps": 1})
    chosen = make_routing(config, _PAIR)
    chosen.start(_start())
    trees = {"math": _chain(0.6), "chat": _chain(0.9, 0.8, 0.7, 0.5, 0.4)}
    assert list(chosen.drafting("a", _PAIR, lambda n_nodes: 1.0)) == ["math", "chat"]
    assert chosen.combine("a", trees, 8) is trees["chat"]
    assert _ask(chosen, trees) == (["math", "chat"] if routing == "confidence" else ["chat"])


@settings(deadline=None)
@given(st.integers(1, 8), st.data())
def test_trees_of_one_size_are_ordered_by_the_mean_probability_of_their_nodes(n: int, data: st.DataObject) -> None:
    probabilities = st.lists(st.floats(0.01, 1.0), min_size=n, max_size=n)
    trees = {member: _chain(*data.draw(probabilities)) for member in _PAIR}
    means = {member: np.exp(path_log_promises(tree))[1:].mean() for member, tree in trees.items()}
    taken = ConfidenceRouting(_PAIR).combine("a", trees, 8)
    assert means["math" if taken is trees["math"] else "chat"] == pytest.approx(max(means.values()))


def test_first_steps_settle_who_drafts_until_the_next_comparison() -> None:
    routing = FirstStepsRouting(_PAIR, n_steps=2, probe_every=3)
    routing.start(_start())
    trees = {"math": _chain(0.9), "chat": _chain(0.3)}
    asked = [_ask(routing, trees) for _ in range(7)]
    assert asked == [["math", "chat"], ["math", "chat"], ["math"], ["math"], ["math"], ["math", "chat"], ["math"]]


def test_a_new_comparison_may_change_the_leader() -> None:
    routing = FirstStepsRouting(_PAIR, n_steps=1, probe_every=2)
    routing.start(_start())
    for math_is, chat_is in ((0.9, 0.3), (0.9, 0.3), (0.9, 0.3), (0.1, 0.3)):
        last = _ask(routing, {"math": _chain(math_is), "chat": _chain(chat_is)})
    assert last == ["math", "chat"]
    assert _ask(routing, {"math": _chain(0.9), "chat": _chain(0.3)}) == ["chat"]


def test_trajectories_are_routed_apart() -> None:
    routing = FirstStepsRouting(_PAIR, n_steps=1, probe_every=9)
    for trajectory in "ab":
        routing.start(_start(trajectory))
    _ask(routing, {"math": _chain(0.9), "chat": _chain(0.3)}, "a")
    _ask(routing, {"math": _chain(0.2), "chat": _chain(0.3)}, "b")
    trees = {"math": _chain(0.5), "chat": _chain(0.5)}
    assert [_ask(routing, trees, trajectory) for trajectory in "ab"] == [["math"], ["chat"]]


def test_later_trajectories_of_a_problem_keep_to_what_earlier_ones_showed() -> None:
    routing = ProblemRouting(_PAIR, n_steps=2)
    trees = {"math": _chain(0.2), "chat": _chain(0.3)}
    for trajectory, scope in (("a", "first"), ("b", "first"), ("c", "second")):
        routing.start(_start(trajectory, scope))
    assert [_ask(routing, trees, "a") for _ in range(3)] == [["math", "chat"], ["math", "chat"], ["chat"]]
    assert _ask(routing, trees, "b") == ["chat"]
    assert _ask(routing, trees, "c") == ["math", "chat"]
    routing.close_scope("first")
    routing.start(_start("d", "first"))
    assert _ask(routing, trees, "d") == ["math", "chat"]


@pytest.mark.parametrize(("drafter", "asked"), [("math", ["math"]), ("removed", ["math", "chat"])])
def test_an_assigned_member_drafts_from_the_beginning(drafter: str, asked: list[str]) -> None:
    routing = ProblemRouting(_PAIR, n_steps=4)
    routing.start(_start(drafter=drafter))
    assert _ask(routing, {"math": _chain(0.2), "chat": _chain(0.3)}) == asked


def test_entropy_chooses_once_by_the_first_tree() -> None:
    routing = EntropyRouting(_PAIR)
    nothing = {member: DraftTree.root_only(0) for member in _PAIR}
    assert _ask(routing, nothing) == ["math", "chat"]
    assert _ask(routing, {"math": _chain(0.6), "chat": _chain(0.99)}) == ["math", "chat"]
    assert [_ask(routing, {"math": _chain(0.99), "chat": _chain(0.6)}) for _ in range(9)] == [["chat"]] * 9
    assert _ask(routing, {"math": _chain(0.99), "chat": _chain(0.6)}, "b") == ["math", "chat"]


class _Bandit:
    """Members that accept a fixed number of tokens at a fixed price; the union accepts what the best one does."""

    def __init__(self, accepted: Mapping[str, int], seconds: Mapping[str, float], cost: float) -> None:
        self.accepted, self.seconds, self.cost = accepted, seconds, cost
        self.routing = ExpectedTokensRouting(list(accepted), n_steps=4, probe_every=32)
        self.trees = {member: _chain(0.5, 0.5) for member in accepted}

    def step(self, trajectory: str = "a") -> tuple[str, ...]:
        asked = tuple(self.routing.drafting(trajectory, self.routing.members, lambda n_nodes: self.cost))
        drafts = {member: self.trees[member] for member in asked}
        tree = self.routing.combine(trajectory, drafts, 8)
        accepted = {member: self.accepted[member] for member in asked}
        seconds = {member: self.seconds[member] for member in asked}
        outcome = StepOutcome(trajectory, drafts, accepted, seconds, tree.n_nodes - 1, max(accepted.values()))
        self.routing.observe(outcome)
        return asked

    def steps(self, n: int, trajectory: str = "a") -> list[tuple[str, ...]]:
        self.routing.start(_start(trajectory))
        return [self.step(trajectory) for _ in range(n)]


def test_a_free_member_drafts_where_passes_are_cheap() -> None:
    """5 tokens in 1.1 seconds against 2 in 0.1."""
    bandit = _Bandit({"network": 4, "table": 1}, {"network": 1.0, "table": 0.0}, cost=0.1)
    asked = bandit.steps(200)
    assert asked[:4] == [("network", "table")] * 4
    assert asked.count(("table",)) > 180
    assert asked.count(("network", "table")) == 4 + 196 // 33


def test_a_good_member_drafts_where_passes_are_dear() -> None:
    """5 tokens in 11 seconds against 2 in 10."""
    asked = _Bandit({"network": 4, "table": 1}, {"network": 1.0, "table": 0.0}, cost=10.0).steps(100)
    assert asked.count(("network",)) > 90


def test_members_draft_together_where_that_brings_more() -> None:
    bandit = _Bandit({"one": 2, "other": 2}, {"one": 0.01, "other": 0.01}, cost=1.0)
    bandit.routing.start(_start())
    for _ in range(20):
        drafts = bandit.trees
        times = dict.fromkeys(drafts, 0.01)
        assert list(bandit.routing.drafting("a", ["one", "other"], lambda n_nodes: 1.0)) == ["one", "other"]
        bandit.routing.combine("a", drafts, 8)
        bandit.routing.observe(StepOutcome("a", drafts, {"one": 2, "other": 2}, times, 4, 3))


def test_a_member_that_becomes_better_is_found_by_probing() -> None:
    bandit = _Bandit({"network": 0, "table": 2}, {"network": 0.1, "table": 0.05}, cost=1.0)
    bandit.steps(50)
    bandit.accepted = {"network": 6, "table": 2}
    asked = [bandit.step() for _ in range(33 * 12)]
    assert asked[-33:].count(("network",)) > 25


def test_a_trajectory_follows_its_own_experience() -> None:
    bandit = _Bandit({"network": 3, "table": 1}, {"network": 0.1, "table": 0.0}, cost=1.0)
    bandit.steps(100, "a")
    bandit.accepted = {"network": 0, "table": 3}
    asked = bandit.steps(100, "b")
    assert asked[0] == ("network",)
    assert asked[-30:].count(("table",)) > 25


def test_a_step_counts_once_for_its_trajectory() -> None:
    """Four steps of 4 tokens and one of none are 4.2 tokens a second, which is more than the other member's 4.1."""
    bandit = _Bandit({"network": 4, "table": 0}, {"network": 1.0, "table": 1 / 4.1}, cost=0.0)
    bandit.steps(4, "a")
    bandit.accepted = {"network": 0, "table": 0}
    assert bandit.steps(2, "b") == [("network",), ("network",)]


def test_pauses_of_the_machine_do_not_count_as_drafting() -> None:
    bandit = _Bandit({"network": 4, "table": 1}, {"network": 0.1, "table": 0.1}, cost=1.0)
    bandit.steps(40)
    bandit.seconds = {"network": 60.0, "table": 0.1}
    bandit.step()
    bandit.seconds = {"network": 0.1, "table": 0.1}
    assert bandit.step() == ("network",)


@pytest.mark.parametrize("name", get_args(RoutingName))
def test_every_name_has_a_routing(name: RoutingName) -> None:
    config = DraftingConfig(drafter="stand").model_copy(update={"routing": name})
    routing = make_routing(config, _PAIR)
    routing.start(_start())
    assert routing.members == _PAIR
    assert _ask(routing, {"math": _chain(0.5), "chat": _chain(0.6)}) == ["math", "chat"]
    routing.close("a")
    routing.close_scope("problem")


def test_a_routing_of_ones_own_works_as_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "drafters.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?class Alternating.*?)```", text.rpartition("## A routing")[2], re.DOTALL)
    names: dict[str, Any] = {"members": {"one": PromptLookup(), "other": PromptLookup()}}
    exec(code, names)
    drafter = names["drafter"]
    drafter.start(replace(_start(), token_ids=np.tile(np.arange(5, dtype=np.int32), 4)))
    assert [drafter.slots(["a"]).grow([3])[0].token.tolist() for _ in range(3)] == [[4, 0, 1, 2]] * 3


# Hindsight.


@pytest.mark.parametrize(
    ("math_is", "chat_is", "mixed", "chosen"),
    [(0.5, 0.4, "mixed", "math"), (0.4, 0.5, None, "chat"), (0.5, 0.495, "mixed", "mixed"), (0.5, 0.495, None, "math")],
)
def test_hindsight_gives_near_ties_to_the_mixed_drafter(
    math_is: float, chat_is: float, mixed: str | None, chosen: str
) -> None:
    assert chosen_in_hindsight({"math": math_is, "chat": chat_is}, mixed) == chosen


# Assignment.

tallies = st.builds(MemberTally, st.integers(0, 9), st.integers(0, 8).map(float), st.integers(0, 9))
reports = st.dictionaries(
    st.tuples(st.sampled_from(["gsm8k", "chat"]), st.sampled_from(_PAIR)), tallies, max_size=4
).map(RoutingReport)


@settings(deadline=None)
@given(st.lists(reports, max_size=4), st.randoms(use_true_random=False))
def test_reports_add_up_in_any_order(added: list[RoutingReport], random: np.random.RandomState) -> None:
    shuffled = added.copy()
    random.shuffle(shuffled)
    sums = sum(added, RoutingReport())
    assert sums == sum(shuffled, RoutingReport())
    for key, tally in sums.tallies.items():
        assert tally == sum((report.tallies[key] for report in added if key in report.tallies), MemberTally())


def _informed(accepted: Mapping[str, int], domain: str = "gsm8k") -> Assignment:
    assignment = Assignment()
    tallies = {(domain, drafter): MemberTally(100, 50.0, n) for drafter, n in accepted.items()}
    assignment.learn(RoutingReport(tallies))
    return assignment


def _assigned(assignment: Assignment, domain: str = "gsm8k", drafters: Sequence[str] = _PAIR) -> list[str]:
    return [assignment.assign(f"problem {i}", domain, drafters) for i in range(2000)]


def test_a_domain_gets_its_drafter_but_for_a_share_that_explores() -> None:
    assignment = _informed({"math": 300, "chat": 200})
    assigned = _assigned(assignment)
    assert assigned == _assigned(assignment)
    assert set(assigned) == {"math", ""}
    assert 2000 / 16 - 40 < assigned.count("") < 2000 / 16 + 40


def test_nobody_is_assigned_before_all_were_compared() -> None:
    assert set(_assigned(_informed({"math": 300}))) == {""}
    assert set(_assigned(_informed({"math": 300, "chat": 200}), domain="code")) == {""}
    assert set(_assigned(_informed({"math": 300, "chat": 200}), drafters=("math", "chat", "new"))) == {""}
    assert set(_assigned(_informed({}), drafters=())) == {""}
