"""Votes: weights by class, ties, Borda weights, independence of order."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.voting import aggregate, borda_weights, count_votes

BALLOT = st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.floats(0, 10), st.floats(-5, 5))


def test_heaviest_class_wins_over_the_largest() -> None:
    vote = count_votes([0, 0, 0, 1, None], [1, 1, 1, 3.5, 9], [0.0] * 5)
    assert vote.winner == 1
    assert list(vote.weights.items()) == [(1, 3.5), (0, 3.0)]


def test_all_abstentions_have_no_winner() -> None:
    assert count_votes([None, None], [1, 1], [3, 4]).winner is None
    assert count_votes([], [], []).winner is None


def test_tie_goes_to_the_highest_summed_score() -> None:
    assert count_votes([0, 1, 0, 1], [1] * 4, [1.0, 0.0, 1.0, 2.5]).winner == 1


def test_tie_of_scores_goes_to_the_lowest_index() -> None:
    assert count_votes([3, 1, 1, 3], [1] * 4, [1.0, 1.0, 1.0, 1.0]).winner == 3


def test_best_scored_member_represents_its_class_and_the_first_of_equals() -> None:
    vote = count_votes([0, 0, 1, 0, 1], [1] * 5, [0.1, 0.7, 0.3, 0.7, 0.3])
    assert vote.representatives == {0: 1, 1: 2}


def test_sums_do_not_depend_on_the_order_of_addition() -> None:
    weights = [1e16, 1.0, 1.0, -0.0]
    assert count_votes([0] * 4, weights, weights).weights == count_votes([0] * 4, weights[::-1], weights[::-1]).weights


@given(st.lists(BALLOT, max_size=12), st.randoms())
def test_a_permutation_changes_nothing_but_exact_ties(
    ballots: list[tuple[int | None, float, float]], source: random.Random
) -> None:
    def outcome(ordered: list[tuple[int | None, float, float]]) -> tuple[dict[int, float], object]:
        vote = count_votes([b[0] for b in ordered], [b[1] for b in ordered], [b[2] for b in ordered])
        return dict(vote.weights), vote.winner

    weights, winner = outcome(ballots)
    shuffled = source.sample(ballots, len(ballots))
    weights_after, winner_after = outcome(shuffled)
    assert weights == weights_after
    if winner != winner_after:
        assert winner is not None
        assert weights[winner] == weights[winner_after]  # type: ignore[index]


def test_borda_weights_fall_with_rank() -> None:
    assert borda_weights([0.2, 0.9, 0.5]) == [1.0, 3.0, 2.0]
    assert borda_weights([0.2, 0.9, 0.5], power=2) == [1.0, 9.0, 4.0]
    assert borda_weights([0.2, 0.9], power=0) == [1.0, 1.0]
    assert borda_weights([]) == []


def test_equal_scores_are_ranked_by_index() -> None:
    assert borda_weights([1.0, 1.0, 2.0]) == [2.0, 1.0, 3.0]


def test_step_scores_are_reduced_by_each_rule() -> None:
    scores = [0.5, 0.25, 1.0, 0.75]
    assert aggregate(scores, "last") == 0.75
    assert aggregate(scores, "min") == 0.25
    assert aggregate(scores, "prod") == 0.09375
    assert aggregate(scores, "mean") == 0.625


def test_no_step_scores_are_no_score_under_any_rule() -> None:
    assert [aggregate([], how) for how in ("last", "min", "prod", "mean")] == [None] * 4
