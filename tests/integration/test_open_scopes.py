"""Scopes and attempts as verifiers see them: what is shared, when it is forgotten, what is drawn anew."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.local_verifier import LAW, LocalVerifier, at, factory, plan_of, run, services_of
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import SearchPlan, SearchServices
from tts_orch.actors.search_runner import search, search_many
from tts_orch.errors import ClusterError
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Problem, SamplingParams, SearchResult

pytestmark = pytest.mark.timeout(60)

PROBLEMS = [Problem("a", "prompt", domain="math"), Problem("b", "prompt", domain="math"), Problem("c", "prompt")]


class Session:
    """A controller over two verifiers, with what searches share."""

    def __init__(self, *verifiers: LocalVerifier, **drafting: Any) -> None:
        self.verifiers = verifiers or (LocalVerifier("v", capacity=2), LocalVerifier("w", capacity=2))
        self.controller = SearchController(factory(*self.verifiers), len(self.verifiers))
        self.services: SearchServices = services_of(self.controller, **drafting)

    async def __aenter__(self) -> Session:
        await self.controller.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.controller.close()

    @property
    def used(self) -> dict[str, set[str]]:
        """Candidates by the scope they were decoded in."""
        found: dict[str, set[str]] = {}
        for request in (request for verifier in self.verifiers for request in verifier.requests):
            found.setdefault(request.scope, set()).add(request.candidate_id.partition("#")[0])
        return found

    async def solve(self, plan: SearchPlan | None = None) -> None:
        async for _ in search_many(PROBLEMS, plan or plan_of(3), self.services):
            pass


@pytest.mark.parametrize(("sharing", "sizes"), [("request", [1] * 9), ("problem", [3, 3, 3])])
def test_scopes_of_requests_and_problems_are_closed_once_everywhere_when_they_end(
    sharing: str, sizes: list[int]
) -> None:
    async def scenario() -> None:
        async with Session(statistics_scope=sharing) as session:
            await session.solve()
            assert sorted(map(len, session.used.values())) == sizes
            for verifier in session.verifiers:
                assert Counter(verifier.closed_scopes) == Counter(session.used.keys())

    run(scenario())


@pytest.mark.parametrize(("sharing", "sizes"), [("task", [3, 6]), ("run", [9])])
def test_scopes_of_tasks_and_runs_stay_open_until_the_end(sharing: str, sizes: list[int]) -> None:
    async def scenario() -> None:
        async with Session(statistics_scope=sharing) as session:
            await session.solve()
            assert sorted(map(len, session.used.values())) == sizes
            assert all(verifier.closed_scopes == [] for verifier in session.verifiers)
            await session.services.scopes.forget()
            await session.services.scopes.forget()
            for verifier in session.verifiers:
                assert Counter(verifier.closed_scopes) == Counter(session.used.keys())

    run(scenario())


@pytest.mark.parametrize("sharing", ["request", "problem", "task", "run"])
def test_what_is_forgotten_is_not_shared_any_more(sharing: str) -> None:
    async def scenario() -> None:
        async with Session(statistics_scope=sharing) as session:
            await session.solve()
            before = set(session.used)
            await session.services.scopes.forget()
            await session.solve()
            assert len(session.used) == 2 * len(before)

    run(scenario())


def test_a_request_is_closed_when_it_ends_and_not_with_its_problem() -> None:
    async def scenario() -> None:
        async with Session(LocalVerifier("v", capacity=1), statistics_scope="request") as session:
            (verifier,) = session.verifiers

            async def policy(problem: Problem, context: SearchContext) -> SearchResult:
                async with aclosing(context.sample([await context.root(problem)], n=4)) as stream:
                    await anext(stream)
                    await asyncio.sleep(0)
                    assert len(verifier.closed_scopes) == 1
                    return SearchResult(problem.id, "policy", None, [candidate async for candidate in stream])

            await search(PROBLEMS[0], 0, plan_of(4, policy=policy), session.services)
            assert len(set(verifier.closed_scopes)) == len(verifier.closed_scopes) == 4

    run(scenario())


def test_a_problem_searched_twice_at_once_is_closed_by_the_last() -> None:
    async def scenario() -> None:
        async with Session(LocalVerifier("v"), statistics_scope="problem") as session:
            (verifier,) = session.verifiers
            short = plan_of(1, law=SamplingParams(max_new_tokens=2))
            long = asyncio.ensure_future(search(PROBLEMS[0], 0, plan_of(2), session.services))
            await search(PROBLEMS[0], 1, short, session.services)
            assert not long.done()
            assert verifier.closed_scopes == []
            await long
            assert len(verifier.closed_scopes) == len(session.used) == 1

    run(scenario())


def test_a_problem_keeps_its_scope_between_two_samples() -> None:
    async def one_after_the_other(problem: Problem, context: SearchContext) -> SearchResult:
        root = await context.root(problem)
        found = [candidate async for candidate in context.sample([root], n=1)]
        colder = SamplingParams(temperature=0.1, max_new_tokens=5)
        found += [candidate async for candidate in context.sample([replace(root, path=(7,))], n=1, law=colder)]
        return SearchResult(problem.id, "policy", None, found)

    async def scenario(stored_law: str) -> tuple[int, int]:
        async with Session(LocalVerifier("v"), stored_law=stored_law) as session:
            await search(PROBLEMS[0], 0, plan_of(1, policy=one_after_the_other), session.services)
            return len(session.used), len(session.verifiers[0].closed_scopes)

    assert run(scenario("raw")) == (1, 1)
    assert run(scenario("processed")) == (2, 2)


def test_a_search_that_fails_closes_its_scopes_too() -> None:
    async def fail(problem: Problem, context: SearchContext) -> SearchResult:
        async with aclosing(context.sample([await context.root(problem)], n=6)) as stream:
            await anext(stream)
        raise ValueError("a fault of the policy")

    async def scenario() -> None:
        async with Session(LocalVerifier("v"), statistics_scope="request") as session:
            with pytest.raises(ValueError, match="a fault"):
                await search(PROBLEMS[0], 0, plan_of(6, policy=fail), session.services)
            closed = session.verifiers[0].closed_scopes
            assert len(closed) == len(set(closed)) == 6

    run(scenario())


# ---- attempts


def test_what_a_lost_worker_had_is_another_attempt() -> None:
    async def scenario() -> None:
        dying, healthy = LocalVerifier("a", at(5, fault="die")), LocalVerifier("b")
        controller = SearchController(factory(dying, healthy, ClusterError("full")), 2)
        await controller.start()
        await search(PROBLEMS[0], 0, plan_of(9, attempt=4), services_of(controller))
        await controller.close()
        begun = [(request.seed, request.attempt) for request in (*dying.requests, *healthy.requests)]
        assert len(set(begun)) == len(begun) > 9
        moved = {request.seed for request in dying.requests} & {request.seed for request in healthy.requests}
        assert moved
        (first,) = {request.attempt for request in dying.requests}
        assert {request.attempt for request in healthy.requests if request.seed in moved} == {first + 1}

    run(scenario())


def test_no_attempt_at_a_run_has_the_number_of_one_in_another() -> None:
    async def attempts(attempt: int) -> set[int]:
        dying = [LocalVerifier(str(i), at(3, fault="die")) for i in range(2)]
        verifiers = [*dying, LocalVerifier("last")]
        controller = SearchController(factory(*verifiers), 1)
        await controller.start()
        await search(PROBLEMS[0], 0, plan_of(2, attempt=attempt, law=LAW), services_of(controller))
        await controller.close()
        return {request.attempt for verifier in verifiers for request in verifier.requests}

    first, second = run(attempts(0)), run(attempts(1))
    assert len(first) == len(second) == 3
    assert not first & second
