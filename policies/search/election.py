"""Let the candidates of a problem vote and write down the outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.voting import count_votes
from tts_orch.records import Candidate, Problem, SearchResult

__all__ = ["elect"]


async def elect(
    problem: Problem,
    method: str,
    candidates: Sequence[Candidate],
    context: SearchContext,
    weigh: Callable[[Sequence[float]], Sequence[float]],
) -> SearchResult:
    """Return the answer of the heaviest answer class.

    Failed candidates and abstentions have no vote. The most self-certain member stands for its class.

    Args:
        problem: the problem.
        method: name of the search policy.
        candidates: all candidates in path order.
        context: partitions them into answer classes.
        weigh: from the voters' self-certainties to their weights.
    """
    complete = [candidate for candidate in candidates if candidate.is_complete]
    classes = await context.answer_classes(complete)
    ballots = [(voter, number) for voter, number in zip(complete, classes, strict=True) if number is not None]
    scores = [voter.self_certainty for voter, _ in ballots]
    vote = count_votes([number for _, number in ballots], weigh(scores), scores)
    faces = {number: ballots[index][0] for number, index in vote.representatives.items()}
    chosen = None if vote.winner is None else faces[vote.winner]
    return SearchResult(
        problem_id=problem.id,
        method=method,
        answer=chosen.answer if chosen else None,
        candidates=candidates,
        chosen=chosen.path if chosen else None,
        votes={str(faces[number].answer): weight for number, weight in vote.weights.items()},
        generated_tokens=sum(candidate.n_tokens for candidate in candidates),
    )
