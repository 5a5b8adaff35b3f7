"""Scores that a deadline cuts off, and scores that take no reward model, in searches over verifiers in the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.integration.local_verifier import LocalVerifier, plan_of, run, searched, services_of
from tests.integration.test_stepwise import METHOD, PROBLEM
from tts_orch.actors.reward_client import RewardClient
from tts_orch.actors.reward_model import RewardDescription
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import SearchServices
from tts_orch.budget_config import BudgetConfig
from tts_orch.config import BestOfN
from tts_orch.method_config import MethodConfig, ParticleFiltering
from tts_orch.policies.search import find_policy
from tts_orch.records import SearchResult
from tts_orch.rewards.base import Solution, StepScores
from tts_orch.rewards.own_scores import OwnScores, certainty_scores, likelihood_scores

pytestmark = pytest.mark.timeout(60)

BEST = BestOfN(n=12)
PARTICLES = ParticleFiltering(n=8, delimiters=("7",), min_step_tokens=2, max_steps=8, aggregation="min")


class StuckHost:
    """Scores texts by their lengths, and after some calls says nothing any more."""

    description = RewardDescription("w", "callable", "f")

    def __init__(self, n_calls: int) -> None:
        self._n_calls_left = n_calls

    async def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        if not self._n_calls_left:
            await asyncio.Event().wait()
        self._n_calls_left -= 1
        return [StepScores((len(one.text) % 97 / 97,), 1, 1) for one in solutions]

    def kill(self) -> None:
        pass


def policy_of(method: MethodConfig) -> Any:
    search = find_policy(method)
    return lambda problem, context: search(problem, context, method)


def cut_off(method: MethodConfig, n_calls: int, **limits: float) -> SearchResult:
    """Search with a reward model that answers so many calls of four solutions each."""

    async def start() -> StuckHost:
        return StuckHost(n_calls)

    async def scenario() -> SearchResult:
        client = RewardClient(start, batch=2)
        await client.start()
        plan = plan_of(method.n, policy=policy_of(method), limits=BudgetConfig(**limits))
        services = partial(services_of, rewards=client.score)
        try:
            return await searched(PROBLEM, plan, LocalVerifier("a", capacity=16), services=services)
        finally:
            await client.close()

    return run(scenario())  # type: ignore[no-any-return]


@pytest.mark.parametrize(("limit", "name"), [("problem_seconds", "deadline"), ("run_seconds", "deadline of the run")])
def test_a_deadline_ends_scoring_and_the_best_that_is_scored_wins(limit: str, name: str) -> None:
    result = cut_off(BEST, 2, **{limit: 3.0})
    scored = [candidate for candidate in result.candidates if candidate.step_scores]
    assert (len(result.candidates), len(scored), result.stopped_by) == (12, 8, name)
    best = max(scored, key=lambda candidate: candidate.step_scores)
    assert (result.chosen, result.answer) == (best.path, best.answer)
    assert result.reward_tokens == 8


def test_solutions_vote_where_a_deadline_lets_none_be_scored() -> None:
    result = cut_off(BEST, 0, problem_seconds=3.0)
    assert (result.stopped_by, sum(result.votes.values())) == ("deadline", 12)
    assert result.answer == next(iter(result.votes))


@pytest.mark.parametrize("method", [METHOD, PARTICLES])
def test_a_search_over_steps_ends_at_a_deadline_that_finds_it_scoring(method: MethodConfig) -> None:
    result = cut_off(method, 1, problem_seconds=1.5)
    assert result.stopped_by == "deadline"
    assert result.candidates


def test_a_deadline_comes_although_the_tokens_are_spent() -> None:
    whole = cut_off(BEST, 9)
    result = cut_off(BEST, 1, problem_tokens=whole.generated_tokens // 2, problem_seconds=1.5)
    assert (whole.stopped_by, result.stopped_by) == ("", "token budget")
    assert any(candidate.step_scores for candidate in result.candidates)


def scored_by(own_scores: OwnScores, method: MethodConfig) -> SearchResult:
    """Search with what the target says of its own tokens."""

    def services(controller: SearchController) -> SearchServices:
        return replace(services_of(controller), own_scores=own_scores)

    plan = plan_of(method.n, policy=policy_of(method))
    return run(searched(PROBLEM, plan, LocalVerifier("a"), services=services))  # type: ignore[no-any-return]


@pytest.mark.parametrize("method", [METHOD, PARTICLES, BEST])
def test_steps_are_scored_by_the_certainty_of_their_own_tokens(method: MethodConfig) -> None:
    result = scored_by(certainty_scores, method)
    assert result.answer is not None
    assert result.reward_tokens == 0
    for candidate in result.candidates:
        certainty = np.mean(candidate.token_ids[candidate.n_before :])  # the toy's: the tokens themselves
        assert candidate.step_scores[-1] == pytest.approx(certainty / (1 + certainty))
        n_steps = {"dvts": len(candidate.path) - 1, "particle_filtering": candidate.path[0] + 1, "best_of_n": 1}
        assert len(candidate.step_scores) == n_steps[method.name]
    assert method is BEST or max(len(candidate.step_scores) for candidate in result.candidates) > 1


@pytest.mark.parametrize("method", [METHOD, PARTICLES, BEST])
def test_steps_are_scored_by_the_likelihood_of_all_tokens_up_to_their_end(method: MethodConfig) -> None:
    result = scored_by(likelihood_scores, method)
    assert result.answer is not None
    for candidate in result.candidates:
        likelihood = np.exp(-np.mean(candidate.token_ids))  # the toy's log-probabilities are minus its tokens
        assert candidate.step_scores[-1] == pytest.approx(likelihood, rel=1e-4, abs=0)
