"""Confidence of candidates by windows of tokens, and what DeepConf makes of it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.stopping.confidence import group_confidences, window_confidence
from tts_orch.policies.stopping.deepconf import confidence_threshold, has_consensus, trace_score, vote_weights
from tts_orch.records import Candidate, FinishReason
from tts_orch.testing import fake_candidate


def confident(answer: str | None, lowest: float, finish_reason: FinishReason = FinishReason.EOS) -> Candidate:
    candidate = fake_candidate(answer, finish_reason=finish_reason)
    return replace(candidate, confidence=9.0, tail_confidence=8.0, bottom_confidence=7.0, lowest_confidence=lowest)


@given(st.lists(st.floats(3, 40), min_size=1, max_size=40), st.integers(1, 50))
def test_groups_are_the_means_of_all_full_windows(confidences: list[float], window: int) -> None:
    width = min(window, len(confidences))
    means = [math.fsum(confidences[i : i + width]) / width for i in range(len(confidences) - width + 1)]
    np.testing.assert_allclose(group_confidences(confidences, window), means, rtol=1e-12)


def test_scores_of_a_trace() -> None:
    confidences = [10.0] * 8 + [4.0] * 2 + [10.0] * 12 + [7.0] * 2
    scores = window_confidence(confidences, window=2)  # 23 groups: 20 of 10 but for 7, 4, 7 and 8.5, 7
    assert (scores.tail, scores.lowest, scores.bottom) == (7.0, 4.0, 5.5)


def test_a_short_trace_is_one_window() -> None:
    assert window_confidence([4.0, 8.0], window=2048) == (6.0, 6.0, 6.0)
    assert window_confidence([], window=8) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("how", "score"), [("mean", 9.0), ("tail", 8.0), ("bottom", 7.0), ("lowest", 6.0)])
def test_trace_scores(how: str, score: float) -> None:
    assert trace_score(confident("1", 6.0), how) == score  # type: ignore[arg-type]


def test_a_small_share_is_a_high_threshold() -> None:
    candidates = [confident("1", float(score)) for score in range(11)]
    failures = [confident(None, 99.0, reason) for reason in (FinishReason.ERROR, FinishReason.CANCELLED)]
    assert confidence_threshold([*candidates, *failures], "lowest", 10) == pytest.approx(9.0)
    assert confidence_threshold([*candidates, *failures], "lowest", 90) == pytest.approx(1.0)
    assert confidence_threshold(candidates, "lowest", 100) == 0.0
    assert confidence_threshold(failures, "lowest", 50) == 0.0


def test_who_votes_and_how_much() -> None:
    candidates = [
        confident("1", 5.0),
        confident("1", 4.9),
        confident("2", 6.0, FinishReason.LENGTH),
        confident("2", 9.0, FinishReason.LOW_CONFIDENCE),
        confident("2", 9.0, FinishReason.ERROR),
    ]
    assert vote_weights(candidates, "lowest", 5.0) == [5.0, 0.0, 6.0, 0.0, 0.0]


def test_consensus() -> None:
    assert has_consensus([0, 1, 0], [60.0, 6.0, 54.0], 0.95)
    assert not has_consensus([0, 1, 0], [60.0, 7.0, 54.0], 0.95)
    assert has_consensus([0, None, 1], [1.0, 50.0, 0.0], 1.0)
    assert not has_consensus([None, None], [1.0, 1.0], 0.5)
    assert not has_consensus([], [], 0.5)
