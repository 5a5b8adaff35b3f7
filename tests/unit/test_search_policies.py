"""Best of n and majority vote against scripted candidates."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from tts_orch.config import BestOfN, MajorityVote
from tts_orch.method_config import Aggregation, Choice
from tts_orch.policies.search import SEARCH_POLICIES
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.testing import FakeSearchContext, fake_candidate

PROBLEM = Problem(id="problem", prompt="?")
Script = dict[tuple[int, ...], Candidate | str | None]


def scripted(*answers: tuple[str | None, float] | None) -> Script:
    """Return a script of (answer, self-certainty); None stands for a failure with a tempting answer and score."""
    failure = fake_candidate("trap", self_certainty=99.0, finish_reason=FinishReason.ERROR, n_tokens=5)
    script: Script = {}
    for i, entry in enumerate(answers):
        candidate = failure if entry is None else fake_candidate(entry[0], self_certainty=entry[1])
        script[(i,)] = replace(candidate, path=(i,), token_ids=(i,) * candidate.n_tokens)
    return script


def search(script: Script, config: BestOfN | MajorityVote, **settings: object) -> SearchResult:
    context = FakeSearchContext(script, **settings)  # type: ignore[arg-type]
    return asyncio.run(_search(context, config))


async def _search(context: FakeSearchContext, config: BestOfN | MajorityVote) -> SearchResult:
    return await SEARCH_POLICIES[config.name](PROBLEM, context, config)


def test_majority_wins_and_its_most_certain_member_stands_for_it() -> None:
    result = search(scripted(("4", 9.0), ("5", 1.0), ("5", 3.0), ("5", 2.0)), MajorityVote(n=4))
    assert (result.answer, result.chosen, result.votes) == ("5", (2,), {"5": 3.0, "4": 1.0})
    assert (result.problem_id, result.method) == ("problem", "majority_vote")


def test_majority_ties_go_to_the_more_certain_class() -> None:
    assert search(scripted(("4", 1.0), ("5", 2.0), ("4", 1.0), ("5", 2.0)), MajorityVote(n=4)).answer == "5"


@pytest.mark.parametrize("config", [MajorityVote(n=4), BestOfN(n=4), BestOfN(n=4, choice="borda")])
def test_failures_stay_in_candidates_but_never_win(config: BestOfN | MajorityVote) -> None:
    result = search(scripted(None, ("7", 0.1), None, None), config)
    assert result.answer == "7"
    assert result.chosen == (1,)
    assert [candidate.path for candidate in result.candidates] == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("config", [MajorityVote(n=3), BestOfN(n=3, choice="borda")])
def test_abstentions_do_not_vote(config: BestOfN | MajorityVote) -> None:
    result = search(scripted((None, 8.0), (None, 9.0), ("7", 0.1)), config)
    assert (result.answer, list(result.votes)) == ("7", ["7"])


@pytest.mark.parametrize("config", [MajorityVote(n=2), BestOfN(n=2, choice="borda")])
def test_nothing_but_abstentions_is_no_answer(config: BestOfN | MajorityVote) -> None:
    result = search(scripted((None, 8.0), (None, 9.0)), config)
    assert (result.answer, result.chosen, result.votes) == (None, None, {})


@pytest.mark.parametrize("config", [MajorityVote(n=2), BestOfN(n=2), BestOfN(n=2, choice="borda")])
def test_nothing_but_failures_is_no_answer(config: BestOfN | MajorityVote) -> None:
    result = search(scripted(None, None), config)
    assert (result.answer, result.chosen, len(result.candidates)) == (None, None, 2)


def test_best_of_n_takes_the_most_certain_and_the_first_of_equals() -> None:
    result = search(scripted(("4", 1.0), ("5", 3.0), ("6", 3.0), ("4", 1.0)), BestOfN(n=4))
    assert (result.answer, result.chosen, result.votes) == ("5", (1,), {})


def test_borda_power_moves_the_outcome_from_the_many_to_the_certain() -> None:
    script = scripted(("4", 4.0), ("5", 3.0), ("5", 2.0), ("5", 1.0))
    assert search(script, BestOfN(n=4, choice="borda", borda_power=1)).votes == {"5": 6.0, "4": 4.0}
    assert search(script, BestOfN(n=4, choice="borda", borda_power=2)).votes == {"4": 16.0, "5": 14.0}


def test_order_of_completion_changes_nothing() -> None:
    script = scripted(("4", 1.0), ("5", 1.0), ("5", 1.0), ("4", 1.0), None)
    backwards = {(i,): 0.004 * (5 - i) for i in range(5)}
    for config in (MajorityVote(n=5), BestOfN(n=5), BestOfN(n=5, choice="borda")):
        assert search(script, config, delays=backwards) == search(script, config)


@pytest.mark.parametrize("config", [MajorityVote(n=3), BestOfN(n=3)])
def test_cancelling_the_search_cancels_what_is_left(config: BestOfN | MajorityVote) -> None:
    async def cancel_early() -> FakeSearchContext:
        context = FakeSearchContext(scripted(("1", 0.0), ("2", 0.0), ("3", 0.0)), delays={(1,): 60.0, (2,): 60.0})
        task = asyncio.create_task(_search(context, config))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return context

    context = asyncio.run(cancel_early())
    assert context.finished == [(0,)]
    assert context.cancelled == [(1,), (2,)]


STEP_SCORES = {(0,): [0.9, 0.3], (1,): [0.4, 0.6], (2,): [0.5, 0.5], (3,): []}


@pytest.mark.parametrize(("aggregation", "chosen"), [("last", (1,)), ("min", (2,)), ("prod", (0,)), ("mean", (0,))])
def test_a_reward_model_chooses_by_the_aggregated_step_scores(aggregation: Aggregation, chosen: tuple[int]) -> None:
    script = scripted(("a", 1.0), ("b", 2.0), ("c", 3.0), ("d", 99.0))
    config = BestOfN(n=4, aggregation=aggregation)
    result = search(script, config, step_scores=STEP_SCORES)
    assert result.chosen == chosen
    assert [candidate.step_scores for candidate in result.candidates][:2] == [(0.9, 0.3), (0.4, 0.6)]


@pytest.mark.parametrize(
    ("choice", "votes"),
    [
        ("weighted", {"x": 0.9, "y": 0.5}),
        ("majority", {"x": 2.0, "y": 1.0, "z": 1.0}),
        ("borda", {"x": 4.0, "y": 2.0}),
    ],
)
def test_votes_by_score_and_the_unscored_counts_in_a_plain_vote_alone(choice: Choice, votes: dict[str, float]) -> None:
    script = scripted(("x", 0.0), ("x", 0.0), ("y", 0.0), ("z", 0.0))
    result = search(script, BestOfN(n=4, choice=choice), step_scores=STEP_SCORES)
    assert result.votes == pytest.approx(votes)
    assert result.chosen == (1,)
    if choice != "majority":
        assert search(script, MajorityVote(n=4, choice=choice), step_scores=STEP_SCORES).votes == result.votes


def test_candidates_of_the_same_tokens_are_scored_once_and_failed_ones_never() -> None:
    script = {(i,): replace(entry, path=(i,)) for i, entry in enumerate([fake_candidate("a")] * 3)}
    script[(1,)] = replace(script[(1,)], finish_reason=FinishReason.ERROR)
    context = FakeSearchContext(script, step_scores={(0,): [0.5]})
    result = asyncio.run(_search(context, BestOfN(n=3)))
    assert [candidate.step_scores for candidate in result.candidates] == [(0.5,), (), (0.5,)]
    assert (context.scored, context.kept, context.dropped) == ([[(0,)]], [[(0,), (2,)]], [[(1,)]])


def test_an_abstention_is_chosen_only_where_nobody_has_an_answer() -> None:
    assert search(scripted((None, 9.0), ("a", 1.0)), BestOfN(n=2)).chosen == (1,)
    assert search(scripted((None, 9.0), (None, 1.0)), BestOfN(n=2)).chosen == (0,)


@pytest.mark.parametrize("reason", [FinishReason.STEP, FinishReason.STEP_LENGTH, FinishReason.LOW_CONFIDENCE])
@pytest.mark.parametrize("config", [MajorityVote(n=2), BestOfN(n=2), BestOfN(n=2, choice="borda")])
def test_the_unfinished_never_wins(config: BestOfN | MajorityVote, reason: FinishReason) -> None:
    script = scripted(("a", 9.0), ("b", 1.0))
    unfinished = script[(0,)]
    assert isinstance(unfinished, Candidate)
    script[(0,)] = replace(unfinished, finish_reason=reason)
    assert search(script, config).answer == "b"


@pytest.mark.parametrize("config", [MajorityVote(n=3), BestOfN(n=3), BestOfN(n=3, choice="borda")])
def test_a_guess_at_an_answer_at_the_end_of_the_tokens_is_none(config: BestOfN | MajorityVote) -> None:
    script = scripted(("a", 9.0), ("a", 9.0), ("b", 1.0))
    for i, is_fallback in ((0, True), (1, True), (2, False)):
        candidate = script[(i,)]
        assert isinstance(candidate, Candidate)
        script[(i,)] = replace(candidate, finish_reason=FinishReason.LENGTH, answer_is_fallback=is_fallback)
    result = search(script, config)
    assert (result.answer, result.chosen) == ("b", (2,)), "who announced the answer before the end has one"


@pytest.mark.parametrize("choice", ["maximum", "weighted", "majority", "borda"])
def test_solutions_vote_where_none_has_a_score(choice: Choice) -> None:
    script = scripted(("x", 9.0), ("y", 1.0), ("y", 2.0))
    result = search(script, BestOfN(n=3, choice=choice), step_scores={(i,): [] for i in range(3)})
    assert (result.answer, result.chosen, result.votes) == ("y", (2,), {"y": 2.0, "x": 1.0})
