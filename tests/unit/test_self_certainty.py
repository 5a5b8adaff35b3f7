"""Self-certainty as a reward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tts_orch.errors import ConfigError
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.self_certainty import certainty_scores
from tts_orch.testing import fake_candidate


def test_the_odds_of_a_score_are_the_certainty() -> None:
    certainties = [0.0, 0.5, 1.0, 12.0, 12.01, 1e6]
    scores = certainty_scores([replace(fake_candidate("a"), self_certainty=value) for value in certainties])
    assert [score / (1 - score) for score in scores] == pytest.approx(certainties)
    assert scores == sorted(set(scores)), "a larger certainty is a larger score"


@pytest.mark.parametrize(("certainty", "score"), [(float("inf"), 1.0), (-1e-9, 0.0)])
def test_scores_stay_probabilities(certainty: float, score: float) -> None:
    assert certainty_scores([replace(fake_candidate("a"), self_certainty=certainty)]) == [score]


def test_it_takes_no_model() -> None:
    assert RewardConfig(kind="self_certainty").model is None
    with pytest.raises(ConfigError, match="reads no model, not m; leave one of both out"):
        RewardConfig(kind="self_certainty", model="m")
