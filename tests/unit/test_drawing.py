"""Sampling that a rule may stop: what it decides, what it cancels, what it saves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.stopping_law import expected_samples
from tts_orch.config import BestOfN, MajorityVote
from tts_orch.errors import ConfigError
from tts_orch.policies.search import SEARCH_POLICIES
from tts_orch.policies.search.turns import run_in_turn
from tts_orch.records import Candidate, FinishReason, Path, Prefix, Problem, SearchResult, StepRule
from tts_orch.stopping_config import (
    AdaptiveConsistency,
    DeepConf,
    DeepConfOffline,
    EarlyStopping,
    SequentialRule,
    StoppingConfig,
)
from tts_orch.testing import FakeSearchContext, fake_candidate

PROBLEM = Problem(id="problem", prompt="?")
FAILED = fake_candidate("trap", finish_reason=FinishReason.ERROR)


def scripted(answers: Sequence[str | Candidate | None]) -> dict[Path, str | Candidate | None]:
    return {
        (i,): replace(entry, path=(i,)) if isinstance(entry, Candidate) else entry for i, entry in enumerate(answers)
    }


def search(context: FakeSearchContext, config: MajorityVote | BestOfN) -> SearchResult:
    async def run() -> SearchResult:
        return await SEARCH_POLICIES[config.name](PROBLEM, context, config)

    return asyncio.run(run())


def drawn(answers: Sequence[str | Candidate | None], rule: StoppingConfig | None, **settings: Any) -> SearchResult:
    return search(FakeSearchContext(scripted(answers), **settings), MajorityVote(n=len(answers), stopping=rule))


def numbers(result: SearchResult) -> list[int]:
    return [candidate.path[0] for candidate in result.candidates]


def test_adaptive_consistency_stops_at_a_lead_and_says_so() -> None:
    result = drawn(["7"] * 4 + ["8"] * 12, AdaptiveConsistency())
    assert (result.answer, numbers(result), result.stopped_by) == ("7", [0, 1, 2, 3], "adaptive_consistency")
    assert result.votes == {"7": 4.0}


def test_without_a_lead_all_are_drawn() -> None:
    result = drawn(["7", "8"] * 6, AdaptiveConsistency())
    assert (len(result.candidates), result.stopped_by) == (12, "")


def test_failures_and_abstentions_bring_no_stop() -> None:
    answers = ["7", None, FAILED, FAILED, FAILED, FAILED, "8", "7", "7", None, "7", "7", "7", "9"]
    result = drawn(answers, AdaptiveConsistency())
    assert (result.answer, numbers(result)) == ("7", list(range(13)))  # 6 to 1
    assert drawn([None] * 8 + [FAILED] * 8, EarlyStopping(window=2)).stopped_by == ""


def test_a_window_that_agrees_has_the_answer() -> None:
    result = drawn(["7", "7", "8", "7", "7", "8", "8", "8", "8", "9"], EarlyStopping(window=3))
    assert (result.answer, numbers(result), result.stopped_by) == ("8", list(range(9)), "esc")
    assert result.votes == {"8": 5.0}
    no_window = drawn(["7", "7", "8", "7", "7", "8", "8", "8"], EarlyStopping(window=3))
    assert (no_window.answer, no_window.votes) == ("7", {"7": 4.0, "8": 4.0})


def test_best_of_n_chooses_among_what_was_drawn() -> None:
    answers = [replace(fake_candidate("7"), self_certainty=float(i)) for i in range(6)]
    context = FakeSearchContext(scripted(answers))
    result = search(context, BestOfN(n=6, stopping=AdaptiveConsistency()))
    assert (result.chosen, len(result.candidates), result.stopped_by) == ((3,), 4, "adaptive_consistency")


@pytest.mark.parametrize("rule", [AdaptiveConsistency(), EarlyStopping(window=3), AdaptiveConsistency(in_flight=12)])
def test_the_stop_does_not_depend_on_who_ends_first(rule: StoppingConfig) -> None:
    answers = ["7", "8", "7", "7", "8", "7", "7", "7", "7", "7", "8", "8", "9", "9", "9"]
    orderly = drawn(answers, rule)
    assert len(orderly.candidates) < len(answers)
    for seed in range(8):
        delays = [0.002 * place for place in random.Random(seed).sample(range(len(answers)), len(answers))]
        assert drawn(answers, rule, delays={(i,): delay for i, delay in enumerate(delays)}) == orderly


def test_completion_order_is_quick_and_takes_what_is_short() -> None:
    delays = {(0,): 30.0, (2,): 30.0}
    rule = AdaptiveConsistency(order="completion", in_flight=4)
    context = FakeSearchContext(scripted(["7", "8", "7", "8", "8", "8", "7", "7"]), delays=delays)
    result = search(context, MajorityVote(n=8, stopping=rule))
    assert (result.answer, numbers(result)) == ("8", [1, 3, 4, 5])
    assert set(context.cancelled) >= {(0,), (2,)}


def test_a_stop_cancels_what_runs_and_begins_no_more() -> None:
    context = FakeSearchContext(scripted(["7"] * 40), delays={(i,): 30.0 for i in (4, 5, 6)})
    result = search(context, MajorityVote(n=40, stopping=AdaptiveConsistency(in_flight=3)))
    assert len(result.candidates) == 4
    assert context.cancelled == [(4,), (5,)]  # (6,) was never begun
    assert context.finished == [(0,), (1,), (2,), (3,)]


def test_no_candidate_is_begun_far_ahead_of_the_first_that_runs() -> None:
    context = FakeSearchContext(scripted(["7"] * 20), delays={(0,): 0.05})
    search(context, MajorityVote(n=20, stopping=EarlyStopping(window=20, in_flight=6)))
    assert context.finished[:6] == [(1,), (2,), (3,), (4,), (5,), (0,)]


def test_cancelling_the_search_cancels_what_runs() -> None:
    async def cancel() -> FakeSearchContext:
        context = FakeSearchContext(scripted(["7"] * 9), delays=lambda path: 30.0 if path[0] else 0.0)
        config = MajorityVote(n=9, stopping=AdaptiveConsistency())
        task = asyncio.create_task(SEARCH_POLICIES[config.name](PROBLEM, context, config))  # type: ignore[arg-type]
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return context

    assert asyncio.run(cancel()).cancelled == [(1,), (2,), (3,), (4,)]


def test_a_spent_budget_ends_the_search_with_what_it_has() -> None:
    result = drawn(["7", "8", "7"] + ["8"] * 9, AdaptiveConsistency(), token_budget=3)
    assert result.answer == "7"
    assert [candidate.finish_reason for candidate in result.candidates[3:]] == [FinishReason.CANCELLED] * 9


def test_an_error_in_one_piece_of_work_cancels_the_others() -> None:
    cancelled = []

    async def work(number: int) -> int:
        if number == 1:
            raise ValueError("broken")
        try:
            await asyncio.sleep(number * 30)
        except asyncio.CancelledError:
            cancelled.append(number)
            raise
        return number

    async def run() -> list[int]:
        async with aclosing(run_in_turn(work, range(9), at_once=3)) as stream:
            return [number async for number in stream]

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(run())
    assert cancelled == [2, 3]


class ConfidentContext(FakeSearchContext):
    """Cuts candidates as the engine does, and records at which confidence."""

    def __init__(self, script: Mapping[Path, Any], **settings: Any) -> None:
        super().__init__(script, **settings)
        self.least: dict[Path, float] = {}

    async def sample(
        self, prefixes: Sequence[Prefix], *, step: StepRule | None = None, **call: Any
    ) -> AsyncGenerator[Candidate, None]:
        assert step is not None
        assert step.confidence is not None
        assert step.delimiters == ()
        async with aclosing(super().sample(prefixes, step=step, **call)) as stream:
            async for candidate in stream:
                self.least[candidate.path] = step.confidence.least
                is_cut = candidate.lowest_confidence < step.confidence.least
                yield replace(candidate, finish_reason=FinishReason.LOW_CONFIDENCE) if is_cut else candidate


def trace(answer: str | None, lowest: float) -> Candidate:
    return replace(fake_candidate(answer), confidence=20 - lowest, lowest_confidence=lowest)


def test_deepconf_learns_cuts_and_stops_at_a_consensus() -> None:
    warm_up = [trace("7", 8.0), trace("8", 6.0), trace("7", 9.0), trace("7", 10.0), trace("8", 10.0)]
    context = ConfidentContext(scripted([*warm_up, trace("8", 7.9), *[trace("7", 11.0)] * 20]), delays={(0,): 0.01})
    rule = DeepConf(warm_up=5, keep_percent=75, consensus=0.9, in_flight=2)
    result = search(context, MajorityVote(n=26, stopping=rule))
    assert (result.answer, result.stopped_by) == ("7", "deepconf")
    assert context.least == {path: 0.0 if path[0] < 5 else 8.0 for path in context.least}
    assert result.candidates[5].finish_reason is FinishReason.LOW_CONFIDENCE
    assert result.votes == {"7": 8.0 + 9.0 + 10.0 + 6 * 11.0, "8": 10.0}  # 93 of 103; one vote less is 82 of 92
    assert numbers(result) == list(range(12))


def test_deepconf_cuts_nobody_while_it_has_not_seen_all_of_the_first() -> None:
    script = scripted([trace("7", 8.0), trace("8", 10.0), trace("8", 9.0), *[trace("7", 1.0)] * 3])
    context = ConfidentContext(script, fails=lambda path: path == (1,))
    search(context, MajorityVote(n=6, stopping=DeepConf(warm_up=3, keep_percent=10, consensus=1.0)))
    assert context.least == {(i,): 0.0 for i in range(6)}, "what failed is drawn again, and teaches another threshold"


def test_deepconf_stops_at_once_where_the_first_agree() -> None:
    context = ConfidentContext(scripted([trace("7", 8.0)] * 9))
    result = search(context, MajorityVote(n=9, stopping=DeepConf(warm_up=4)))
    assert (len(result.candidates), context.cancelled) == (4, [])


def test_deepconf_needs_candidates_beyond_the_first() -> None:
    with pytest.raises(ConfigError, match="warm_up: 16 candidates of 16"):
        MajorityVote(n=16, stopping=DeepConf())


def test_offline_the_most_confident_vote_with_their_confidence() -> None:
    traces = [trace("7", 5.0), trace("7", 6.0), trace("8", 15.0), trace("7", 7.0), trace(None, 16.0)]
    context = ConfidentContext(scripted(traces))
    rule = DeepConfOffline(keep_percent=50)
    result = search(context, MajorityVote(n=5, stopping=rule))
    assert (result.answer, result.votes, result.stopped_by) == ("8", {"8": 15.0, "7": 7.0}, "")
    assert len(result.candidates) == 5
    by_mean = search(context, MajorityVote(n=5, stopping=rule.model_copy(update={"trace_score": "mean"})))
    assert by_mean.votes == {"7": 15.0 + 14.0 + 13.0}


@pytest.mark.parametrize(
    ("rule", "open_at_once"),
    [(None, 40), (AdaptiveConsistency(), 4), (EarlyStopping(in_flight=50), 40), (DeepConf(warm_up=9), 9)],
)
def test_how_many_a_problem_has_open(rule: StoppingConfig | None, open_at_once: int) -> None:
    assert MajorityVote(n=40, stopping=rule).n_at_once == open_at_once


def simulated(rule: SequentialRule | None) -> tuple[float, int]:
    """Return the accuracy over 150 problems of every difficulty, and the candidates that it took."""
    draws = random.Random(11)
    n_right = n_drawn = 0
    for _ in range(150):
        share = draws.betavariate(2, 1)
        answers = ["7" if draws.random() < share else draws.choice(["1", "2", "3", "4", None]) for _ in range(40)]
        result = drawn(answers, rule)  # type: ignore[arg-type]
        n_right += result.answer == "7"
        n_drawn += len(result.candidates)
    return n_right / 150, n_drawn


def test_rules_save_candidates_and_keep_the_accuracy() -> None:
    accuracy, n_drawn = simulated(None)
    assert n_drawn == 150 * 40
    beta, n_beta = simulated(AdaptiveConsistency())
    dirichlet, n_dirichlet = simulated(AdaptiveConsistency(rule="dirichlet"))
    windows, n_windows = simulated(EarlyStopping())
    assert min(beta, dirichlet, windows) >= accuracy - 0.01
    assert n_beta < n_dirichlet < 0.4 * n_drawn
    assert n_windows < 0.6 * n_drawn


def test_windows_draw_as_many_as_expected() -> None:
    draws = random.Random(3)
    counts = [
        len(drawn(draws.choices(["7", "8"], [0.8, 0.2], k=20), EarlyStopping(window=4)).candidates) for _ in range(400)
    ]
    assert sum(counts) / 400 == pytest.approx(expected_samples([0.8, 0.2], 4, 20), abs=0.9)  # 3 standard errors
