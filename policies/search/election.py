"""From the candidates of a problem to its answer: the best of them, or a vote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from tts_orch.errors import ConfigError
from tts_orch.method_config import ScoredMethod
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.voting import aggregate, borda_weights, count_votes
from tts_orch.records import Candidate, Problem, SearchResult

__all__ = ["Score", "check_choice", "choose", "elect", "one_each", "self_certainty"]

Score: TypeAlias = Callable[[Candidate], float | None]
"""Of a candidate; None keeps it from being chosen and from voting."""


def self_certainty(candidate: Candidate) -> float:
    """Return the score of a candidate where there is no reward model."""
    return candidate.self_certainty


def one_each(scores: Sequence[float]) -> list[float]:
    """Return the weights of voters in a plain majority vote."""
    return [1.0] * len(scores)


def check_choice(config: ScoredMethod, context: SearchContext) -> None:
    """Refuse to weight votes by self-certainty, which has no upper bound.

    Raises:
        ConfigError: votes are weighted by score, and there is no reward model.
    """
    if config.choice == "weighted" and not context.has_rewards:
        raise ConfigError(
            "choice: weighted needs a reward model; give one, or vote by rank of self-certainty with borda"
        )


async def choose(
    problem: Problem,
    config: ScoredMethod,
    candidates: Sequence[Candidate],
    context: SearchContext,
    factors: Sequence[float] | None = None,
) -> SearchResult:
    """Return the answer that `config.choice` asks for; see `elect` for the arguments.

    Candidates are judged by their step scores, and without a reward model by self-certainty. One that could not be scored
    is not chosen and counts in a plain majority vote alone; where none could be, before a deadline for instance, that is taken.
    """
    if context.has_rewards and not any(candidate.step_scores for candidate in candidates if candidate.is_solution):
        return await elect(problem, config.name, candidates, context, factors=factors)
    score = partial(_reward, config) if context.has_rewards else self_certainty
    vote = partial(elect, problem, config.name, candidates, context, factors=factors)
    match config.choice:
        case "maximum":
            best = _best((voter for voter, _ in _voters(candidates, factors)), score)
            return _result(problem, config.name, candidates, best)
        case "majority":
            return await vote(score=lambda candidate: score(candidate) or 0.0)
        case "weighted":
            return await vote(weigh=list, score=score)
        case "borda":
            return await vote(weigh=partial(borda_weights, power=config.borda_power), score=score)


async def elect(
    problem: Problem,
    method: str,
    candidates: Sequence[Candidate],
    context: SearchContext,
    *,
    weigh: Callable[[Sequence[float]], Sequence[float]] = one_each,
    score: Score = self_certainty,
    factors: Sequence[float] | None = None,
) -> SearchResult:
    """Return the answer of the heaviest answer class.

    Only solutions vote, abstentions do not. The member with the best score stands for its class.

    Args:
        problem: the problem.
        method: name of the search policy.
        candidates: all candidates in path order.
        context: partitions them into answer classes.
        weigh: from the voters' scores to their weights.
        score: of a candidate; its sum breaks ties between classes.
        factors: by which each candidate's weight is multiplied, 1 if not given; 0 leaves it out of every choice.
    """
    voters = _voters(candidates, factors)
    classes = await context.answer_classes([voter for voter, _ in voters])
    ballots = [
        (voter, factor, number, value)
        for (voter, factor), number in zip(voters, classes, strict=True)
        if number is not None and (value := score(voter)) is not None
    ]
    scores = [value for *_, value in ballots]
    weights = [factor * weight for (_, factor, *_), weight in zip(ballots, weigh(scores), strict=True)]
    outcome = count_votes([number for _, _, number, _ in ballots], weights, scores)
    faces = {number: ballots[index][0] for number, index in outcome.representatives.items()}
    votes = {str(faces[number].answer): weight for number, weight in outcome.weights.items()}
    return _result(problem, method, candidates, next(iter(faces.values()), None), votes)


def _voters(candidates: Sequence[Candidate], factors: Sequence[float] | None) -> list[tuple[Candidate, float]]:
    """Return who may be chosen and vote, with the factor of each."""
    pairs = zip(candidates, factors or [1.0] * len(candidates), strict=True)
    return [(candidate, factor) for candidate, factor in pairs if candidate.is_solution and factor]


def _best(solutions: Iterable[Candidate], score: Score) -> Candidate | None:
    """Return the solution with the best score, the first of equals; one without an answer only where none has one."""
    scored = [(solution, value) for solution in solutions if (value := score(solution)) is not None]
    best = max(scored, key=lambda pair: (pair[0].answer is not None, pair[1]), default=None)
    return best[0] if best else None


def _reward(config: ScoredMethod, candidate: Candidate) -> float | None:
    return aggregate(candidate.step_scores, config.aggregation)


def _result(
    problem: Problem,
    method: str,
    candidates: Sequence[Candidate],
    chosen: Candidate | None,
    votes: Mapping[str, float] | None = None,
) -> SearchResult:
    return SearchResult(
        problem_id=problem.id,
        method=method,
        answer=chosen.answer if chosen else None,
        candidates=candidates,
        chosen=chosen.path if chosen else None,
        votes=votes or {},
    )
