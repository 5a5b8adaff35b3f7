"""Searches step by step against verifiers in the event loop: where steps end, where they go on, what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.integration.local_verifier import LAW, LocalVerifier, at, factory, plan_of, run, searched, services_of
from tests.toys_decoder import EOS_ID, expected_output
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import CandidateJournal, VolatileJournal
from tts_orch.actors.search_runner import search_many
from tts_orch.budget_config import BudgetConfig
from tts_orch.config import DVTS
from tts_orch.errors import ConfigError
from tts_orch.journal import Journal
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.dvts import dvts
from tts_orch.records import (
    Candidate,
    Chunk,
    ConfidenceCut,
    DecodeRequest,
    FinishReason,
    Problem,
    SearchResult,
    StepRule,
)
from tts_orch.rewards.base import StepScores

pytestmark = pytest.mark.timeout(60)

METHOD = DVTS(n=8, beam_width=2, delimiters=("7",), min_step_tokens=2, max_steps=8)
PROBLEM = Problem("p", "prompt")
Policy = Callable[[SearchContext], Any]


class Rewards:
    """Gives scores that depend on the tokens alone, and remembers how many it was asked for."""

    def __init__(self) -> None:
        self.n_scored = 0

    async def __call__(
        self, problem: Problem, candidates: Sequence[Candidate], deadline: asyncio.Event
    ) -> list[StepScores]:
        self.n_scored += len(candidates)
        return [StepScores((sum(one.token_ids) % 101 / 100,), one.n_tokens, one.n_tokens) for one in candidates]


async def _dvts(problem: Problem, context: SearchContext) -> SearchResult:
    return await dvts(problem, context, METHOD)


def solve(
    *verifiers: LocalVerifier,
    n_started: int = 1,
    policy: Any = _dvts,
    rewards: Any = None,
    journal: CandidateJournal | None = None,
    **limits: Any,
) -> SearchResult:
    plan = plan_of(8, policy=policy, journal=journal or VolatileJournal(), limits=BudgetConfig(**limits))
    services = partial(services_of, rewards=rewards or Rewards())
    return run(searched(PROBLEM, plan, *verifiers, n_started=n_started, services=services))  # type: ignore[no-any-return]


def what_counts(result: SearchResult) -> tuple[Any, ...]:
    candidates = [replace(one, worker="", fingerprint="", verify_steps=0) for one in result.candidates]
    return result.answer, result.chosen, candidates, result.generated_tokens, result.reward_tokens


def asking(policy: Policy) -> Any:
    """Return a policy that returns the candidates that a coroutine makes of the context."""

    async def ask(problem: Problem, context: SearchContext) -> SearchResult:
        return SearchResult(problem.id, "asking", None, await policy(context))

    return ask


async def sampled(context: SearchContext, *arguments: Any, **keywords: Any) -> list[Candidate]:
    async with aclosing(context.sample(*arguments, **keywords)) as stream:
        return sorted([candidate async for candidate in stream], key=lambda one: one.path)


# ---- steps


def test_a_subtree_goes_on_from_the_step_that_it_keeps() -> None:
    verifier = LocalVerifier("a")
    result = solve(verifier)
    assert len(result.candidates) == 4
    assert max(len(candidate.path) for candidate in result.candidates) >= 3
    for candidate in result.candidates:
        assert candidate.parent == (candidate.path[:-1] if len(candidate.path) > 2 else ())
        assert 0 <= candidate.n_before < candidate.n_tokens
        assert candidate.finish_reason in (FinishReason.EOS, FinishReason.LENGTH)
    lengths = {request.candidate_id: len(request.token_ids) for request in verifier.requests}
    assert result.generated_tokens == verifier.decoder.committed
    assert result.kept_tokens == sum(candidate.n_tokens for candidate in result.candidates) < result.generated_tokens
    assert len(set(lengths.values())) > 3


@pytest.mark.parametrize("n_workers", [2, 3])
def test_workers_and_their_loss_change_nothing(n_workers: int) -> None:
    alone = solve(LocalVerifier("a"))
    workers = [LocalVerifier(name) for name in "abc"]
    assert what_counts(solve(*workers, n_started=n_workers)) == what_counts(alone)
    dying = LocalVerifier("a", at(9, fault="die")), LocalVerifier("b", at(4, 5, fault="lose")), LocalVerifier("c")
    assert what_counts(solve(*dying, n_started=n_workers)) == what_counts(alone)
    assert dying[0].is_dead


def test_a_moved_candidate_is_cut_at_the_same_token() -> None:
    rule = StepRule((), max_tokens=25, confidence=ConfidenceCut(window=4, least=9.0))

    async def policy(context: SearchContext) -> list[Candidate]:
        return await sampled(context, [await context.root(PROBLEM)], n=30, step=rule)

    alone = solve(LocalVerifier("a", capacity=8), policy=asking(policy))
    dying = LocalVerifier("a", lambda call: "die" if call == 3 else None, capacity=8)
    moved_to = LocalVerifier("b", lambda call: "die" if call == 4 else None, capacity=8)
    moved = solve(dying, moved_to, LocalVerifier("c", capacity=8), policy=asking(policy))
    assert what_counts(moved) == what_counts(alone)
    reasons = {candidate.finish_reason for candidate in alone.candidates}
    assert reasons >= {FinishReason.LOW_CONFIDENCE, FinishReason.STEP_LENGTH}
    cut = [one for one in alone.candidates if one.finish_reason is FinishReason.LOW_CONFIDENCE]
    assert all(one.lowest_confidence == one.tail_confidence == np.mean(one.token_ids[-4:]) < 9 for one in cut)
    assert all(one.answer is None for one in cut)
    assert all(one.answer is not None for one in alone.candidates if one.can_continue)
    begun = [one for one in moved_to.requests if len(one.token_ids) > one.prompt_length]
    assert any(len(one.confidences) >= 2 for one in begun), "nothing was moved in the middle"


def test_what_follows_a_step_goes_to_the_worker_that_has_its_prefix() -> None:
    """Although nothing of the problem is live between two steps, and the other worker is just as idle."""

    async def policy(context: SearchContext) -> list[Candidate]:
        root = prefix = await context.root(PROBLEM)
        candidates = []
        for _ in range(8):
            candidates += await sampled(context, [prefix], n=1, step=StepRule((), max_tokens=3))
            if candidates[-1].token_ids[-1] == EOS_ID:
                break
            prefix = root.after(candidates[-1])
        return candidates

    verifiers = LocalVerifier("a"), LocalVerifier("b")
    candidates = solve(*verifiers, n_started=2, policy=asking(policy)).candidates
    assert len(candidates) > 4
    assert len({candidate.worker for candidate in candidates}) == 1


def test_many_next_steps_are_shared_out_all_the_same() -> None:
    async def policy(context: SearchContext) -> list[Candidate]:
        root = await context.root(PROBLEM)
        [first] = await sampled(context, [root], n=1, step=StepRule((), max_tokens=3))
        return await sampled(context, [root.after(first)], n=8, step=StepRule((), max_tokens=9))

    verifiers = LocalVerifier("a", capacity=16), LocalVerifier("b", capacity=16)
    candidates = solve(*verifiers, n_started=2, policy=asking(policy)).candidates
    workers = [candidate.worker for candidate in candidates]
    assert sorted(workers) == ["a"] * 4 + ["b"] * 4


def test_a_text_behind_a_prefix_is_output() -> None:
    async def policy(context: SearchContext) -> list[Candidate]:
        root = await context.root(PROBLEM)
        longer = await context.append(root, "abc")
        assert (longer.path, longer.prompt_length) == (root.path, root.prompt_length)
        return await sampled(context, [longer], n=2, first=5)

    verifier = LocalVerifier("a")
    result = solve(verifier, policy=asking(policy))
    first, second = result.candidates
    assert result.kept_tokens == result.generated_tokens == first.n_tokens + second.n_tokens - 2 * 3
    appended = tuple(ord(character) % 41 for character in "abc")
    assert (first.path, second.path) == ((5,), (6,))
    assert (first.token_ids[:3], first.n_before, first.parent) == (appended, 3, ())


# ---- what is remembered


def cut(folder: Path, n_lines: int) -> None:
    """Leave what a driver had written that was killed before."""
    for name in ("candidates.jsonl", "scores.jsonl", "steps.jsonl"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:n_lines]))


@pytest.mark.parametrize("n_lines", [0, 5, 17, 1000])
def test_a_resumed_search_ends_with_the_same_result(tmp_path: Path, n_lines: int) -> None:
    rewards, journal = Rewards(), Journal(tmp_path)
    unbroken = solve(LocalVerifier("a"), rewards=rewards, journal=journal)
    journal.close()
    steps = (tmp_path / "steps.jsonl").read_text()
    cut(tmp_path, n_lines)
    verifier, again = LocalVerifier("b"), Rewards()
    with_journal = Journal(tmp_path)
    resumed = solve(verifier, rewards=again, journal=with_journal)
    with_journal.close()
    assert what_counts(resumed) == what_counts(unbroken)
    n_candidates = rewards.n_scored
    assert len(verifier.submitted) == again.n_scored == max(n_candidates - n_lines, 0)
    assert sorted((tmp_path / "steps.jsonl").read_text().splitlines()) == sorted(steps.splitlines())


def test_a_candidate_of_another_prefix_is_decoded_again(tmp_path: Path) -> None:
    def policy(max_tokens: int) -> Any:
        async def ask(context: SearchContext) -> list[Candidate]:
            root = await context.root(PROBLEM)
            [first] = await sampled(context, [root], n=1, law=replace(LAW, max_new_tokens=max_tokens))
            return await sampled(context, [root.after(first, path=(9,))], n=1)

        return asking(ask)

    journal = Journal(tmp_path)
    [short] = solve(LocalVerifier("a"), policy=policy(2), journal=journal).candidates
    (tmp_path / "candidates.jsonl").write_text((tmp_path / "candidates.jsonl").read_text().splitlines()[1] + "\n")
    journal = Journal(tmp_path)
    [longer] = solve(LocalVerifier("a"), policy=policy(3), journal=journal).candidates
    assert (short.path, short.seed) == (longer.path, longer.seed)
    assert (short.n_before, longer.n_before) == (2, 3)
    assert journal.finished("p", longer.path, longer.seed) == longer


def test_without_a_reward_model_scores_are_refused() -> None:
    async def policy(problem: Problem, context: SearchContext) -> SearchResult:
        assert not context.has_rewards
        await context.score([])
        raise AssertionError

    with pytest.raises(ConfigError, match="reward model"):
        run(searched(PROBLEM, plan_of(1, policy=policy), LocalVerifier("a")))


# ---- budgets


def test_a_spent_token_budget_gives_the_best_answer_so_far() -> None:
    async def policy(context: SearchContext) -> list[Candidate]:
        root = await context.root(PROBLEM)
        first = await sampled(context, [root], n=12)
        return [*first, *await sampled(context, [root], n=3, first=20)]

    whole = solve(LocalVerifier("a"), policy=asking(policy))
    verifier = LocalVerifier("a")
    result = solve(verifier, policy=asking(policy), problem_tokens=whole.generated_tokens // 3)
    reasons = [candidate.finish_reason for candidate in result.candidates]
    assert (whole.stopped_by, result.stopped_by) == ("", "token budget")
    assert FinishReason.EOS in reasons
    assert reasons[-3:] == [FinishReason.CANCELLED] * 3
    assert whole.generated_tokens // 3 <= result.generated_tokens < whole.generated_tokens / 2
    assert result.generated_tokens == verifier.decoder.committed == sum(one.n_new for one in result.candidates)


def test_a_deadline_counts_from_the_first_token() -> None:
    async def policy(context: SearchContext) -> list[Candidate]:
        return await sampled(context, [await context.root(PROBLEM)], n=8)

    slow = LocalVerifier("a", capacity=1)
    slow.decoder.delay_s = 0.2
    result = solve(slow, policy=asking(policy), problem_seconds=0.1)
    assert result.stopped_by == "deadline"
    assert result.generated_tokens > 0
    assert FinishReason.CANCELLED in [candidate.finish_reason for candidate in result.candidates]


def test_a_budget_that_is_not_spent_stops_nothing() -> None:
    assert what_counts(solve(LocalVerifier("a"), problem_tokens=10**6, run_seconds=60)) == what_counts(
        solve(LocalVerifier("a"))
    )


def test_journaled_tokens_count_and_journaled_candidates_are_still_given(tmp_path: Path) -> None:
    async def policy(context: SearchContext) -> list[Candidate]:
        return await sampled(context, [await context.root(PROBLEM)], n=6)

    journal = Journal(tmp_path)
    first = solve(LocalVerifier("a"), policy=asking(policy), journal=journal, problem_tokens=50)
    verifier = LocalVerifier("a")
    again = solve(verifier, policy=asking(policy), journal=journal, problem_tokens=5)
    n_complete = sum(candidate.is_complete for candidate in first.candidates)
    assert 0 < n_complete < 6
    assert sum(candidate.is_complete for candidate in again.candidates) == n_complete
    assert not verifier.submitted


def test_a_spent_run_budget_begins_no_more_problems() -> None:
    problems = [Problem(str(i), "prompt") for i in range(60)]

    async def scenario(**limits: Any) -> list[SearchResult]:
        controller = SearchController(factory(LocalVerifier("a")), 1)
        await controller.start()
        plan = plan_of(4, limits=BudgetConfig(**limits))
        results = [one async for one in search_many(problems, plan, services_of(controller))]
        await controller.close()
        return results

    results = run(scenario(run_tokens=1000))
    assert len(results) < 30
    assert {result.stopped_by for result in results} == {"", "token budget of the run"}
    assert 1000 <= sum(result.generated_tokens for result in results) < 1400
    assert len(run(scenario())) == 60


# ---- orders beside a poll that waits


class Waiting(LocalVerifier):
    """Answers a poll only when it has something to say, or after a while."""

    async def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
    ) -> tuple[int, list[Chunk]]:
        self._take(submit, cancel)
        before = self.decoder.committed
        for _ in range(100):
            await asyncio.sleep(0.01)
            sequence, chunks = await super().exchange([], [], acknowledged)
            if any(chunk.finish_reason for chunk in chunks) or self.decoder.committed - before > 500:
                return sequence, chunks
        return sequence, chunks


def test_a_waiting_verifier_gets_new_work_and_cancellations_at_once() -> None:
    async def scenario() -> tuple[float, Waiting]:
        verifier = Waiting("a", capacity=8)
        controller = SearchController(factory(verifier), 1)
        await controller.start()
        long = replace(LAW, max_new_tokens=400, min_new_tokens=0)
        endless = next(seed for seed in range(10**6) if len(expected_output(seed, 3, 400)) == 400)
        live = controller.decode(DecodeRequest("long", np.ones(3, np.int32), 3, endless, long), "p", 0)
        await asyncio.sleep(0.05)
        short = DecodeRequest("short", np.ones(3, np.int32), 3, endless, replace(LAW, max_new_tokens=4))
        await controller.decode(short, "q", 1).decoded
        n_tokens = live.end
        controller.cancel(live)
        await live.decoded
        await controller.close()
        return n_tokens, verifier

    n_tokens, verifier = run(scenario())
    assert n_tokens < 100
    assert verifier.cancelled
    assert verifier.decoder.is_idle
