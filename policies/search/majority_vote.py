"""Majority vote: sample n candidates, return the answer that most of them give."""

from __future__ import annotations

from dataclasses import replace

from tts_orch.method_config import MajorityVote
from tts_orch.policies.search.best_of_n import best_of_n
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.drawing import draw
from tts_orch.policies.search.election import elect
from tts_orch.records import Problem, SearchResult

__all__ = ["majority_vote"]


async def majority_vote(problem: Problem, context: SearchContext, config: MajorityVote) -> SearchResult:
    """Search by majority vote over answer classes (self-consistency), each candidate the same or weighted by score.

    Ties go to the class with the highest summed score, self-certainty in a plain vote, then to the earliest candidate.

    Source: arXiv 2203.11171.
    """
    if config.choice != "majority":
        return await best_of_n(problem, context, config)
    drawn = await draw(problem, context, config.n, config.stopping)
    result = await elect(problem, config.name, drawn.candidates, context, factors=drawn.weights)
    return replace(result, stopped_by=drawn.stopped_by)
