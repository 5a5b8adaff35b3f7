"""A composition whose members come and go."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pooled import FeatureReader
from tts_orch.config import DraftingConfig
from tts_orch.drafters.loading import with_member
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import Drafter, TrajectoryStart, VerifiedStep
from tts_orch.records import SamplingParams


def members(drafter: Drafter) -> dict[str, Drafter]:
    assert isinstance(drafter, ComposedDrafter)
    return drafter.members


@pytest.fixture
def math_alone(tmp_path: Path) -> DraftingConfig:
    return DraftingConfig(drafter="neural", drafters={"math": tmp_path})


def test_members_come_are_replaced_and_go(math_alone: DraftingConfig) -> None:
    math, chat, better = FeatureReader(1), FeatureReader(2), FeatureReader(3)
    both = with_member(math, math_alone, "chat", chat)
    assert members(both) == {"math": math, "chat": chat}
    replaced = with_member(both, math_alone, "math", better)
    assert members(replaced) == {"math": better, "chat": chat}
    one = with_member(replaced, math_alone, "math", None)
    assert members(one) == {"chat": chat}
    assert members(with_member(one, math_alone, "unknown", None)) == {"chat": chat}
    with pytest.raises(ConfigError, match="chat is the only one"):
        with_member(one, math_alone, "chat", None)


def test_what_was_counted_stays(math_alone: DraftingConfig) -> None:
    both = with_member(FeatureReader(1, ()), math_alone, "chat", FeatureReader(2, ()))
    both.start(
        TrajectoryStart("a", np.array([5, 6], np.int32), "scope", 0, SamplingParams(temperature=0.0), domain="d")
    )
    (tree,) = both.slots(["a"]).grow([4])
    node = tree.children[0][0]
    committed = np.array([tree.token[node], 9], np.int32)
    no_laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
    both.observe([VerifiedStep("a", tree, np.array([node], np.int32), committed, *no_laws)])
    counted = both.statistics()
    assert sum(counted.values()) == 4 + 1
    one = with_member(both, math_alone, "chat", None)
    assert one.statistics() == counted
    assert {key for key, tally in one.take_report().tallies.items() if tally.steps} == {("d", "math"), ("d", "chat")}


def test_an_ngram_drafter_stays_a_member_with_what_it_knows() -> None:
    stand = FeatureReader()
    assert members(with_member(stand, DraftingConfig(), "math", FeatureReader(1)))["stand"] is stand


def test_under_rejection_no_drafter_joins_one_that_draws() -> None:
    config = DraftingConfig(verification="rejection")
    with pytest.raises(ConfigError, match="stand drafts alone and draws at random; start a run with math"):
        with_member(FeatureReader(), config, "math", FeatureReader())
    for settings in ({"drafter": "prompt_lookup"}, {"draft_sampling": "deterministic"}):
        config = DraftingConfig(verification="rejection", **settings)
        assert list(members(with_member(FeatureReader(), config, "math", FeatureReader()))) == [config.drafter, "math"]
