"""Whose nodes were verified, and whose were right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.exactness.decoding import decode, new_decoder, prompt, request, toy_target
from tests.toys import VOCABULARY_SIZE
from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.anpd import Anpd
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.composed_kinds import SOURCES
from tts_orch.policies.drafting.draft_tree import CountingDrafter, DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.member_counts import MemberCounts, member_shares
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.registry import make_drafter
from tts_orch.policies.routing.merged import ConcatenatedRouting
from tts_orch.records import SamplingParams


def step(sources: list[int], accepted: list[int]) -> VerifiedStep:
    n = len(sources)
    tree = DraftTree.chain(0, range(1, n + 1))
    tree.source[1:] = sources
    committed = np.arange(len(accepted) + 1, dtype=np.int32)
    no_laws = np.zeros((n + 1, 1), np.int32), np.zeros((n + 1, 1), np.float32)
    return VerifiedStep("a", tree, np.array(accepted, np.int32), committed, *no_laws)


def test_nodes_are_counted_by_member_and_the_root_is_nobodys() -> None:
    counts = MemberCounts(["first", "second"])
    counts.add([step([3, SOURCES, SOURCES + 4], [1, 2]), step([], [])])
    counts.add([step([SOURCES], [1])])
    shares = member_shares(counts.counters())
    assert list(shares) == ["second", "first"]
    assert shares["second"] == {"drafted": 3, "accepted": 2, "share_of_drafted": 0.75, "share_of_accepted": 2 / 3}
    assert shares["first"] == {
        "drafted": 1,
        "accepted": 1,
        "share_of_drafted": 0.25,
        "share_of_accepted": pytest.approx(1 / 3),
    }


def test_counters_of_workers_add_up_and_others_are_left_alone() -> None:
    assert member_shares({"draft_nodes": 5.0}) == {}
    one, other = MemberCounts(["a"]), MemberCounts(["a"])
    one.add([step([0, 0], [1])])
    other.add([step([0], [])])
    together = {name: n + other.counters()[name] for name, n in one.counters().items()}
    assert member_shares({**together, "draft_nodes": 3.0})["a"]["drafted"] == 3
    assert member_shares(MemberCounts(["idle"]).counters())["idle"]["share_of_accepted"] == 0


def test_a_composed_drafter_counts_what_its_members_proposed() -> None:
    names = ["anpd", "prompt_lookup"]
    drafter = ComposedDrafter(dict(zip(names, (Anpd(), PromptLookup()), strict=True)), ConcatenatedRouting(names))
    assert isinstance(drafter, CountingDrafter)
    prompt = np.array([1, 2, 3, 4, 1, 2, 3, 4, 1, 2], np.int32)
    drafter.start(TrajectoryStart("a", prompt, "scope", 0, SamplingParams()))
    (tree,) = drafter.slots(["a"]).grow([4])
    nodes = tree.path(int(tree.depth.argmax()))[:2]
    no_laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
    committed = np.array([*tree.token[nodes], 9], np.int32)
    drafter.observe([VerifiedStep("a", tree, np.array(nodes, np.int32), committed, *no_laws)])
    shares = member_shares(drafter.statistics())
    assert sum(share["drafted"] for share in shares.values()) == tree.n_nodes - 1
    assert sum(share["accepted"] for share in shares.values()) == 2


def test_counts_of_members_are_those_of_the_decoder() -> None:
    stand = make_drafter(DraftingConfig(), vocabulary_size=VOCABULARY_SIZE)
    assert stand is not None
    members = {"prompt_lookup": PromptLookup(), "stand": stand}
    drafter = ComposedDrafter(members, ConcatenatedRouting(list(members)))
    decoder = new_decoder(toy_target(), drafter, node_budget=False, max_nodes=6)
    for name in "ab":  # the second one repeats the first
        decode(decoder, [request(name, prompt(30), SamplingParams(temperature=0, max_new_tokens=30))])
    counters = decoder.statistics()
    shares = member_shares(counters).values()
    assert counters["accepted_nodes"] > 0
    assert sum(share["accepted"] for share in shares) == counters["accepted_nodes"]
    assert sum(share["drafted"] for share in shares) == counters["draft_nodes"]
