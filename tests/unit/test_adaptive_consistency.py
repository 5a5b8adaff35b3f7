"""The stopping rules of adaptive consistency against published and simulated probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.stopping.adaptive_consistency import beta_confidence, dirichlet_confidence, is_settled
from tts_orch.stopping_config import AdaptiveConsistency

BETA = {
    (1, 0): 0.75,
    (2, 0): 0.875,
    (3, 0): 0.9375,
    (4, 0): 0.96875,
    (5, 1): 0.9375,
    (6, 1): 0.96484,
    (8, 2): 0.96729,
    (9, 2): 0.98071,
    (10, 3): 0.97131,
    (4, 4): 0.5,
    (12, 4): 0.97548,
}
DIRICHLET = {
    (3, 1, 1): 0.69770,
    (5, 1, 1): 0.88826,
    (5, 2, 1): 0.81796,
    (7, 2, 1): 0.93061,
    (4, 4, 1): 0.47882,
    (6, 1, 1, 1, 1): 0.88655,
}


def classes_of(counts: tuple[int, ...]) -> list[int]:
    return [number for number, count in enumerate(counts) for _ in range(count)]


@pytest.mark.parametrize(("counts", "probability"), BETA.items())
def test_beta(counts: tuple[int, int], probability: float) -> None:
    assert beta_confidence(*counts) == pytest.approx(probability, abs=5e-6)
    assert is_settled(AdaptiveConsistency(), classes_of(counts)) == (probability >= 0.95)


@pytest.mark.parametrize(("counts", "probability"), DIRICHLET.items())
def test_dirichlet(counts: tuple[int, ...], probability: float) -> None:
    assert dirichlet_confidence(counts) == pytest.approx(probability, abs=5e-6)


def test_beta_is_more_eager_than_dirichlet_where_there_is_a_third_answer() -> None:
    classes = classes_of((6, 1, 1, 1, 1))
    assert is_settled(AdaptiveConsistency(rule="beta"), classes)
    assert not is_settled(AdaptiveConsistency(rule="dirichlet"), classes)


@given(st.integers(0, 60), st.integers(0, 60))
def test_with_two_answers_both_rules_are_one(first: int, second: int) -> None:
    assert dirichlet_confidence([first, second]) == pytest.approx(beta_confidence(first, second), abs=1e-10)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=6))
def test_one_answer_or_another_has_the_largest_share(counts: list[int]) -> None:
    rotations = [counts[i:] + counts[:i] for i in range(len(counts))]
    assert sum(map(dirichlet_confidence, rotations)) == pytest.approx(1.0, abs=1e-9)


def test_dirichlet_is_what_random_shares_give() -> None:
    shares = np.random.default_rng(5).dirichlet(np.array([9, 5, 3, 1, 0]) + 1, size=400_000)
    share = float((shares.argmax(axis=1) == 0).mean())
    assert dirichlet_confidence([9, 5, 3, 1, 0]) == pytest.approx(share, abs=0.004)  # 5 standard errors


def test_exact_also_for_many_votes() -> None:
    assert dirichlet_confidence([3000, 2900]) == pytest.approx(beta_confidence(3000, 2900), abs=1e-10)


@pytest.mark.parametrize("rule", ["beta", "dirichlet"])
def test_abstentions_do_not_vote(rule: str) -> None:
    settings = AdaptiveConsistency(rule=rule)
    assert not is_settled(settings, [])
    assert not is_settled(settings, [None] * 40)
    assert not is_settled(settings, [0, 0, 0, *[None] * 40])
    assert is_settled(settings, [0, None, 0, None, 0, 0])
