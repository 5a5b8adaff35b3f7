"""Majority vote: sample n candidates, return the answer that most of them give."""

from __future__ import annotations

from tts_orch.config import MajorityVote
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.election import elect
from tts_orch.policies.search.sampling import sample_candidates
from tts_orch.records import Problem, SearchResult

__all__ = ["majority_vote"]


async def majority_vote(problem: Problem, context: SearchContext, config: MajorityVote) -> SearchResult:
    """Search by majority vote over answer classes (self-consistency).

    Ties go to the class with the highest summed self-certainty, then to the earliest candidate.

    Source: arXiv 2203.11171.
    """
    candidates = await sample_candidates(problem, context, config.n)
    return await elect(problem, config.name, candidates, context, weigh=lambda scores: [1.0] * len(scores))
