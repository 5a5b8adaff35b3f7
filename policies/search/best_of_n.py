"""Best of n: sample n candidates and choose by score."""

from __future__ import annotations

from dataclasses import replace

from tts_orch.method_config import BestOfN, MajorityVote
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.drawing import draw
from tts_orch.policies.search.election import check_choice, choose
from tts_orch.policies.search.scoring import score_candidates
from tts_orch.records import Problem, SearchResult

__all__ = ["best_of_n"]


async def best_of_n(problem: Problem, context: SearchContext, config: BestOfN | MajorityVote) -> SearchResult:
    """Search by the best candidate, or by a vote weighted by score or by rank of score.

    Without a reward model the score is self-certainty. A failed candidate is never chosen; ties go to the earliest one.

    Raises:
        ConfigError: votes are to be weighted by score, and there is no reward model.

    Source: arXiv 2305.20050 (reward models), arXiv 2502.18581 (self-certainty).
    """
    check_choice(config, context)
    drawn = await draw(problem, context, config.n, config.stopping)
    candidates = drawn.candidates
    if context.has_rewards:
        candidates = await score_candidates(candidates, context)
        await context.keep(
            [candidate for candidate in candidates if candidate.is_solution],
            [candidate for candidate in candidates if not candidate.is_solution],
        )
    result = await choose(problem, config, candidates, context, drawn.weights)
    return replace(result, stopped_by=drawn.stopped_by)
