"""Sample candidates and wait for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing

from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, Prefix, SamplingParams, StepRule

__all__ = ["collect"]


async def collect(
    context: SearchContext,
    prefixes: Sequence[Prefix],
    n: int,
    step: StepRule | None = None,
    law: SamplingParams | None = None,
) -> list[Candidate]:
    """Return n children of each prefix in path order, failed ones included; see `SearchContext.sample`.

    Cancelling this cancels those that are still running.
    """
    async with aclosing(context.sample(prefixes, n=n, step=step, law=law)) as stream:
        candidates = [candidate async for candidate in stream]
    return sorted(candidates, key=lambda candidate: candidate.path)
