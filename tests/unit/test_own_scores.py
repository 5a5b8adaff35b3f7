"""Rewards that are the target's own word."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tts_orch.errors import ConfigError
from tts_orch.reward_config import RewardConfig, RewardKind
from tts_orch.rewards.own_scores import certainty_scores, likelihood_scores
from tts_orch.testing import fake_candidate


def test_the_odds_of_a_score_are_the_certainty() -> None:
    certainties = [0.0, 0.5, 1.0, 12.0, 12.01, 1e6]
    scores = certainty_scores([replace(fake_candidate("a"), self_certainty=value) for value in certainties])
    assert [score / (1 - score) for score in scores] == pytest.approx(certainties)
    assert scores == sorted(set(scores)), "a larger certainty is a larger score"


@pytest.mark.parametrize(("certainty", "score"), [(float("inf"), 1.0), (-1e-9, 0.0)])
def test_scores_stay_probabilities(certainty: float, score: float) -> None:
    assert certainty_scores([replace(fake_candidate("a"), self_certainty=certainty)]) == [score]


def test_likelihoods_are_those_of_all_tokens_so_far() -> None:
    first = replace(fake_candidate("a", n_tokens=2), log_prob=math.log(0.25))
    second = replace(fake_candidate("a", n_tokens=6), n_before=2, log_prob=math.log(0.5**4 / 4))
    assert likelihood_scores([first, second]) == pytest.approx([0.5, (0.25 * 0.5**4 / 4) ** (1 / 6)])
    assert likelihood_scores([first]) == likelihood_scores([first, second])[:1], "what comes later changes no score"


def test_a_step_without_tokens_and_a_law_that_is_certain_are_scored_one() -> None:
    nothing = replace(fake_candidate("a", n_tokens=0), log_prob=0.0)
    certain = replace(fake_candidate("a", n_tokens=3), log_prob=1e-9)  # rounding
    assert likelihood_scores([nothing, certain]) == [1.0, 1.0]


@pytest.mark.parametrize("kind", ["self_certainty", "likelihood"])
def test_they_take_no_model(kind: RewardKind) -> None:
    assert RewardConfig(kind=kind).model is None
    with pytest.raises(ConfigError, match=f"{kind} reads no model, not m; leave one of both out"):
        RewardConfig(kind=kind, model="m")
