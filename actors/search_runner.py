"""Runs a search policy over problems: many at a time, each advancing by itself, results as they come."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import AsyncGenerator, Iterable
from contextlib import closing
from dataclasses import replace

from tts_orch.actors._budget import Budget
from tts_orch.actors.problem_context import ProblemContext
from tts_orch.actors.search_plan import SearchPlan, SearchServices
from tts_orch.records import Problem, SearchResult

__all__ = ["search", "search_many"]


async def search(problem: Problem, order: int, plan: SearchPlan, services: SearchServices) -> SearchResult:
    """Search one problem; cancelling this cancels its candidates.

    Raises:
        OrchestratorError: nothing can be decoded any more, or the problem cannot be rendered.
    """
    with closing(plan.run_budget()) as budget:
        return await _search(problem, order, plan, services, budget)


async def search_many(
    problems: Iterable[Problem], plan: SearchPlan, services: SearchServices
) -> AsyncGenerator[SearchResult, None]:
    """Yield results as problems finish; raises as `search` does.

    Problems are drawn from the iterable when there is room for them: enough are active to keep the verifiers full while
    some wait for their last candidates. Once the budget of the run is spent no more are drawn.
    """
    source, orders = iter(problems), itertools.count()
    active: set[asyncio.Task[SearchResult]] = set()
    budget = plan.run_budget()
    try:
        while True:
            n_active = 2 + math.ceil(2 * services.controller.window / plan.n)  # verifiers come and go
            while len(active) < n_active and not budget.spent:
                problem = await asyncio.to_thread(next, source, None)
                if problem is None:
                    break
                active.add(asyncio.ensure_future(_search(problem, next(orders), plan, services, budget)))
            if not active:
                return
            done, active = await asyncio.wait(active, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                yield task.result()
    finally:
        budget.close()
        for task in active:
            task.cancel()
        await asyncio.gather(*active, return_exceptions=True)


async def _search(
    problem: Problem, order: int, plan: SearchPlan, services: SearchServices, run_budget: Budget
) -> SearchResult:
    context = ProblemContext(problem, order, plan, services, run_budget, await services.assign(problem))
    try:
        result = await plan.policy(problem, context)
    finally:
        await context.close()
    if services.controller.failure is not None:
        raise services.controller.failure
    return replace(
        result,
        generated_tokens=context.generated_tokens,
        kept_tokens=context.lineage.n_tokens(candidate for candidate in result.candidates if candidate.is_complete),
        verify_steps=context.verify_steps,
        reward_tokens=context.reward_tokens,
        reward_tokens_whole=context.reward_tokens_whole,
        stopped_by=result.stopped_by or context.stopped_by,
    )
