"""Best of n: sample n candidates and choose by self-certainty."""

from __future__ import annotations

from functools import partial

from tts_orch.config import BestOfN
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.election import elect
from tts_orch.policies.search.sampling import sample_candidates
from tts_orch.policies.voting import borda_weights
from tts_orch.records import Problem, SearchResult

__all__ = ["best_of_n"]


async def best_of_n(problem: Problem, context: SearchContext, config: BestOfN) -> SearchResult:
    """Search by the most self-certain candidate, or by a vote weighted by the rank of self-certainty.

    Self-certainty has no upper bound, so votes are weighted by its rank, never by its value. A failed candidate is never
    chosen; ties go to the earliest one.

    Source: arXiv 2502.18581.
    """
    candidates = await sample_candidates(problem, context, config.n)
    if config.choice == "borda":
        weigh = partial(borda_weights, power=config.borda_power)
        return await elect(problem, config.name, candidates, context, weigh)
    complete = [candidate for candidate in candidates if candidate.is_complete]
    best = max(complete, key=lambda candidate: candidate.self_certainty, default=None)
    return SearchResult(
        problem_id=problem.id,
        method=config.name,
        answer=best.answer if best else None,
        candidates=candidates,
        chosen=best.path if best else None,
        generated_tokens=sum(candidate.n_tokens for candidate in candidates),
    )
