"""Members of a composition rest one by one: what they cost that do not pay, who goes on, and who is found again."""

from __future__ import annotations

import numpy as np
import pytest

from tests.paced_drafters import Clock, PacedDrafter, World
from tts_orch.config import DraftingConfig
from tts_orch.drafting_config import RoutingName
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_outcomes import first_proposers
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth
from tts_orch.policies.drafting.member_accounts import MemberAccounts, MemberPass
from tts_orch.policies.routing.registry import make_routing

_PLAIN = 1.14  # seconds of a pass of 8 rows
_ROUTINGS: tuple[RoutingName, ...] = ("merged", "expected_tokens", "first_steps")


def _world(clock: Clock, routing: RoutingName, **members: PacedDrafter) -> World:
    config = DraftingConfig().model_copy(update={"routing": routing})
    drafter = ComposedDrafter(members, make_routing(config, list(members)), clock)
    return World(drafter, clock, n_trajectories=8, row_seconds=0.02)


@pytest.mark.parametrize("routing", _ROUTINGS)
def test_a_member_that_does_not_pay_rests_alone(routing: RoutingName) -> None:
    clock = Clock()
    table, head = PacedDrafter(clock, 0.005, 0.5), PacedDrafter(clock, 0.5 * _PLAIN, 0.1, number=1)
    world = _world(clock, routing, table=table, head=head)
    world.run(200)
    assert head.spent / clock.now < 0.02
    assert table.n_drafts >= 195
    assert world.speed > 1.1


@pytest.mark.parametrize("routing", _ROUTINGS)
def test_a_dear_member_that_pays_goes_on(routing: RoutingName) -> None:
    clock = Clock()
    table, head = PacedDrafter(clock, 0.005, 0.2), PacedDrafter(clock, 0.3 * _PLAIN, 0.8, number=1)
    world = _world(clock, routing, table=table, head=head)
    world.run(100)
    assert head.n_drafts > 95
    assert world.speed > 1.3


def test_a_member_that_becomes_good_is_found_again() -> None:
    clock = Clock()
    table, head = PacedDrafter(clock, 0.005, 0.3), PacedDrafter(clock, 0.2 * _PLAIN, 0.05, number=1)
    world = _world(clock, "merged", table=table, head=head)
    world.run(60)
    assert head.n_drafts < 24
    head.hits = 0.9
    world.run(260)
    n_drafts = head.n_drafts
    world.run(20)
    assert head.n_drafts == n_drafts + 20


def test_who_only_proposes_what_another_does_brings_nothing() -> None:
    """Both are right about the same tokens; alone either would pay."""
    clock = Clock()
    table, head = PacedDrafter(clock, 0.005, 0.7), PacedDrafter(clock, 0.2 * _PLAIN, 0.7)
    world = _world(clock, "merged", head=head, table=table)
    world.run(150)
    assert head.n_drafts < 60
    assert table.n_drafts == 150


class _Reader(PacedDrafter):
    @property
    def feature_layers(self) -> tuple[int, ...]:
        return (-1,)


def test_who_rests_reads_no_hidden_states() -> None:
    clock = Clock()
    table, head = PacedDrafter(clock, 0.005, 0.5), _Reader(clock, 0.5 * _PLAIN, 0.1, number=1)
    world = _world(clock, "merged", table=table, head=head)
    for _ in range(30):
        reads, n_drafts = world.drafter.reads_features, head.n_drafts
        world.run(1)
        assert (head.n_drafts > n_drafts) == reads
    assert 0 < head.n_drafts < 15


def test_all_may_rest() -> None:
    clock = Clock()
    heads = {name: PacedDrafter(clock, 0.5 * _PLAIN, 0.1, number=i) for i, name in enumerate("ab")}
    world = _world(clock, "merged", **heads)
    world.run(30)
    assert world.drafter.is_resting
    trees = world.drafter.slots(world.names).grow([4] * 8)
    assert [tree.n_nodes for tree in trees] == [1] * 8


def test_a_node_counts_for_the_first_that_proposed_it() -> None:
    one, other = DraftTree.chain(0, [1, 2, 3]), DraftTree.chain(0, [1, 2, 4, 5])
    verified = DraftTree.chain(0, [1, 2, 4, 5, 6])
    assert first_proposers(verified, [one, other]).tolist() == [2, 0, 0, 1, 1, 2]
    assert first_proposers(verified, [other, one]).tolist() == [2, 0, 0, 0, 0, 2]


def _growth() -> Growth:
    empty = np.zeros(0, np.int64)
    return Growth(np.zeros(1), 1.0 + 0.1 * np.arange(20), 4, 1.0, empty, empty)


def test_a_pause_of_the_machine_costs_no_more_than_a_few_drafts() -> None:
    accounts = MemberAccounts(["one"])
    for seconds in (100.0, *(0.1 for _ in range(10)), 100.0):
        accounts.book({"one": MemberPass(4, 0, 0, 0, 0, seconds)}, _growth(), 4)
    assert accounts.offered == ("one",)


def test_a_trial_is_in_debt_until_its_allowance_has_paid_for_it() -> None:
    accounts, n = MemberAccounts(["one"]), 0
    while accounts.offered:
        accounts.book({"one": MemberPass(4, 0, 0, 0, 0, 0.7)}, _growth(), 4)  # half a pass, 2 tokens
        n += 1
    assert n == 17
    assert accounts.on_trial == ()
    for _ in range(170):
        accounts.add_allowance(4)
    assert accounts.on_trial == accounts.offered == ("one",)
    accounts.book({"one": MemberPass(4, 4, 4, 4, 4, 0.1)}, _growth(), 4)
    assert accounts.offered == ("one",)
    assert accounts.on_trial == ()


def test_accounts_of_members_that_stay_are_kept() -> None:
    """One of the same name that is another drafter begins anew."""
    clock = Clock()
    heads = {name: PacedDrafter(clock, 0.5 * _PLAIN, 0.1, number=i) for i, name in enumerate("ab")}
    world = _world(clock, "merged", **heads)
    world.run(30)
    members = {**heads, "b": PacedDrafter(clock, 0.1, 0.9)}
    routing = make_routing(DraftingConfig().model_copy(update={"routing": "merged"}), list(members))
    changed = world.drafter.changed(members, routing)
    assert not changed.is_resting
    assert changed._ledger.accounts.offered == ("b",)
