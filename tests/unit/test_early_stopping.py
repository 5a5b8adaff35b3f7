"""Early-stopping self-consistency."""

from __future__ import annotations

import numpy as np
import pytest

from tests.stopping_law import expected_samples
from tts_orch.policies.stopping.early_stopping import is_settled
from tts_orch.stopping_config import EarlyStopping


@pytest.mark.parametrize(
    ("classes", "settled"),
    [
        ([], False),
        ([0, 0], False),
        ([0, 0, 0], True),
        ([0, 0, 1], False),
        ([1, 0, 0, 0], False),  # windows do not overlap
        ([0, 0, 1, 1, 1, 1], True),
        ([None, None, None], False),
        ([0, 0, None], False),
    ],
)
def test_a_full_window_of_one_answer_settles(classes: list[int | None], settled: bool) -> None:
    assert is_settled(EarlyStopping(window=3), classes) is settled


@pytest.mark.parametrize(
    ("shares", "window", "n", "samples"),
    [([1.0], 5, 40, 5.0), ([0.5, 0.5], 2, 6, 3.5), ([0.5, 0.5], 2, 5, 3.25), ([], 4, 10, 10.0)],
)
def test_expected_samples(shares: list[float], window: int, n: int, samples: float) -> None:
    assert expected_samples(shares, window, n) == pytest.approx(samples)


def test_expected_samples_are_what_a_simulation_draws() -> None:
    shares, window, n = [0.6, 0.25], 3, 14
    drawn = []
    for answers in np.random.default_rng(1).choice([0, 1, -1], p=[*shares, 0.15], size=(4000, n)):
        classes = [None if answer < 0 else int(answer) for answer in answers]
        stops = (k for k in range(1, n) if is_settled(EarlyStopping(window=window), classes[:k]))
        drawn.append(next(stops, n))
    error = float(np.std(drawn) / np.sqrt(len(drawn)))
    assert np.mean(drawn) == pytest.approx(expected_samples(shares, window, n), abs=4 * error)
