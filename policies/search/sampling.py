"""Sample whole candidates from a problem's prompt."""

from __future__ import annotations

from contextlib import aclosing

from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, Problem

__all__ = ["sample_candidates"]


async def sample_candidates(problem: Problem, context: SearchContext, n: int) -> list[Candidate]:
    """Return n candidates in path order, failed ones included; cancelling this cancels those that are still running."""
    root = await context.root(problem)
    async with aclosing(context.sample([root], n=n)) as stream:
        candidates = [candidate async for candidate in stream]
    return sorted(candidates, key=lambda candidate: candidate.path)
