from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tts_orch.bench.coupling import aligned_laws, draft_length, keyed_acceptance, rejection_acceptance

P = np.array([0.5, 0.3, 0.1, 0.1])
Q = np.array([0.2, 0.5, 0.3, 0.0])
ROWS = 20_000
FIVE_SIGMA = 5 * 0.5 / np.sqrt(ROWS)
P_ROWS, Q_ROWS = np.tile(P, (ROWS, 1)), np.tile(Q, (ROWS, 1))
COMMITTED = np.random.default_rng(9).choice(4, ROWS, p=P)


def exact_keyed(siblings: int) -> float:
    """For one child: the chance that one exponential race has the same winner under both laws."""
    assert siblings == 1
    return sum(1 / np.maximum(P / P[i], Q / Q[i]).sum() for i in range(4) if P[i] * Q[i] > 0)


def exact_rejection(siblings: int) -> float:
    """Enumerate all sequences of draws without replacement."""
    accepted = 0.0
    for order in permutations(np.flatnonzero(Q).tolist(), siblings):
        p, q, drawn, rejected = P, Q, 1.0, 1.0
        for token in order:
            drawn *= q[token]
            rejected *= 1 - min(1.0, p[token] / q[token])
            left, others = np.maximum(p - q, 0), np.where(np.arange(4) == token, 0, q)
            p, q = left / left.sum(), others / max(others.sum(), 1e-300)
        accepted += drawn * (1 - rejected)
    return accepted


def test_keyed_acceptance_of_one_child_is_exact() -> None:
    estimate = keyed_acceptance(P_ROWS, Q_ROWS, COMMITTED, 1, 1, np.random.default_rng(0)).mean()
    assert estimate == pytest.approx(exact_keyed(1), abs=FIVE_SIGMA)


@pytest.mark.parametrize("siblings", [1, 2, 3])
def test_rejection_acceptance_is_exact(siblings: int) -> None:
    estimate = rejection_acceptance(P_ROWS, Q_ROWS, COMMITTED, siblings, 1, np.random.default_rng(siblings)).mean()
    assert estimate == pytest.approx(exact_rejection(siblings), abs=FIVE_SIGMA)


def test_rejection_of_one_child_is_one_minus_total_variation() -> None:
    assert exact_rejection(1) == pytest.approx(np.minimum(P, Q).sum())


@pytest.mark.parametrize("rule", [keyed_acceptance, rejection_acceptance])
def test_equal_laws_accept_and_an_empty_draft_does_not(rule: object) -> None:
    p, q = np.stack([P, P]), np.stack([P, np.zeros(4)])
    for siblings, committed in ((1, 0), (2, 1), (4, 3)):
        accepted = rule(p, q, np.full(2, committed), siblings, 50, np.random.default_rng(0))  # type: ignore[operator]
        assert accepted[1] == 0
        assert accepted[0] == pytest.approx(1)


def test_acceptance_is_given_the_committed_token() -> None:
    """One keyed draw from q is token 3 never, and token 0, which q has too little of, less often than p needs it."""
    by_token = [
        keyed_acceptance(P_ROWS, Q_ROWS, np.full(ROWS, i), 1, 1, np.random.default_rng(i)).mean() for i in range(4)
    ]
    race = [1 / np.maximum(P / P[i], Q / max(Q[i], 1e-300)).sum() for i in range(4)]
    np.testing.assert_allclose(by_token, np.array(race) / P, atol=FIVE_SIGMA)
    assert by_token[3] == 0


def test_more_draws_than_the_draft_has_tokens_change_nothing() -> None:
    draws = [rejection_acceptance(P_ROWS, Q_ROWS, COMMITTED, k, 1, np.random.default_rng(5)).mean() for k in (3, 6)]
    assert draws[0] == pytest.approx(draws[1], abs=FIVE_SIGMA)


def test_laws_are_aligned_by_id_and_keep_their_mass() -> None:
    law = np.array([[7, 3, 5]]), np.array([[0.5, 0.2, 0.1]])
    draft = np.array([[3, 9, -1]]), np.array([[0.6, 0.4, 0.0]])
    p, q, columns = aligned_laws(*law, *draft, np.array([3]))
    np.testing.assert_allclose(p, [[0.2, 0, 0, 0.5, 0, 0.1, 0.2]])
    np.testing.assert_allclose(q, [[0.6, 0.4, 0, 0, 0, 0, 0]])
    assert columns.tolist() == [0]
    assert [aligned_laws(*law, *draft, np.array([token]))[2].item() for token in (9, 7, 5, 2)] == [1, 3, 5, 6]


def test_unused_draft_columns_take_no_mass_of_the_padding_id() -> None:
    p, _, _ = aligned_laws(
        np.array([[-1, 0]]), np.array([[0.5, 0.5]]), np.array([[-1]]), np.array([[0.0]]), np.array([0])
    )
    np.testing.assert_allclose(p, [[0, 0.5, 0.5, 0]])


def test_draft_length_is_that_of_simulated_steps() -> None:
    acceptance = np.random.default_rng(2).beta(2, 1, 200)
    generator, steps, runs = np.random.default_rng(3), 0, 400
    for _ in range(runs):
        position = 0
        while position < len(acceptance):
            level = 0
            while (
                level < 3 and position + level < len(acceptance) and generator.random() < acceptance[position + level]
            ):
                level += 1
            position, steps = position + level + 1, steps + 1
    assert draft_length(acceptance, 3) == pytest.approx(runs * len(acceptance) / steps, rel=0.01)


def test_draft_length_of_constant_acceptance_is_the_sum_of_its_powers() -> None:
    assert draft_length(np.full(5000, 0.5), 3) == pytest.approx(1 + 0.5 + 0.25 + 0.125, rel=1e-3)
    assert draft_length(np.zeros(10), 3) == 1.0
