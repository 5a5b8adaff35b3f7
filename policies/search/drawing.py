"""Draw candidates from a problem's prompt until all are there, or until a stopping rule has seen enough."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Final

from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.sampling import collect
from tts_orch.policies.search.turns import run_in_turn, sample_child
from tts_orch.policies.stopping import verdicts
from tts_orch.policies.stopping.deepconf import confidence_threshold, vote_weights
from tts_orch.policies.stopping.verdicts import Judge
from tts_orch.records import Candidate, ConfidenceCut, FinishReason, Prefix, Problem, StepRule
from tts_orch.stopping_config import AdaptiveConsistency, DeepConf, DeepConfOffline, EarlyStopping, StoppingConfig

__all__ = ["Drawn", "draw"]

_NO_LIMIT: Final = 2**31 - 1  # the sampling law has one


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a method chooses from.

    Attributes:
        candidates: in path order, failed ones included; what was begun beyond a stop is left out.
        weights: of each candidate's vote, to be multiplied by what the method gives it; 0 leaves it out of every choice.
        stopped_by: name of the rule that stopped before all were drawn, empty if none did.
    """

    candidates: Sequence[Candidate]
    weights: Sequence[float]
    stopped_by: str = ""


async def draw(problem: Problem, context: SearchContext, n: int, rule: StoppingConfig | None) -> Drawn:
    """Draw at most n candidates; cancelling this cancels those that are still running.

    A rule decides by the candidates in path order, whichever end first, unless it is told to go by their completion.
    """
    root = await context.root(problem)
    match rule:
        case None:
            candidates = await collect(context, [root], n)
            return Drawn(candidates, [1.0] * n)
        case AdaptiveConsistency():
            return await _draw_in_turn(context, root, n, rule, partial(verdicts.of_consistency, rule))
        case EarlyStopping():
            return await _draw_in_turn(context, root, n, rule, partial(verdicts.of_window, rule))
        case DeepConf():
            return await _draw_confident(context, root, n, rule)
        case DeepConfOffline():
            return await _draw_and_filter(context, root, n, rule)


async def _draw_and_filter(context: SearchContext, root: Prefix, n: int, rule: DeepConfOffline) -> Drawn:
    candidates = await collect(context, [root], n, _whole(rule.confidence_window))
    least = confidence_threshold(candidates, rule.trace_score, rule.keep_percent)
    return Drawn(candidates, vote_weights(candidates, rule.trace_score, least))


async def _draw_confident(context: SearchContext, root: Prefix, n: int, rule: DeepConf) -> Drawn:
    """Draw the first candidates whole, and cut the others where they fall below what these teach.

    One of the first that failed is drawn again by the next run, and would teach something else: then nothing is cut.
    """
    window = rule.confidence_window
    first = await collect(context, [root], min(rule.warm_up, n), _whole(window))
    has_failed = any(candidate.finish_reason is FinishReason.ERROR for candidate in first)
    least = 0.0 if has_failed else confidence_threshold(first, "lowest", rule.keep_percent)
    judge = partial(verdicts.of_confidence, rule, least)
    return await _draw_in_turn(context, root, n, rule, judge, first=first, step=_whole(window, least))


def _whole(window: int, least: float = 0.0) -> StepRule:
    """Return the rule of a step that is a whole solution, its confidence summed up by windows; none of them is below 0."""
    return StepRule(delimiters=(), max_tokens=_NO_LIMIT, confidence=ConfidenceCut(window, least))


async def _draw_in_turn(
    context: SearchContext,
    root: Prefix,
    n: int,
    rule: AdaptiveConsistency | EarlyStopping | DeepConf,
    judge: Judge,
    *,
    first: Sequence[Candidate] = (),
    step: StepRule | None = None,
) -> Drawn:
    candidates = list(first)
    work = partial(sample_child, context, root, step=step)
    stream = run_in_turn(work, range(len(first), n), at_once=rule.in_flight, order=rule.order)
    async with aclosing(stream):
        while True:
            verdict = judge(candidates, await _solution_classes(context, candidates))
            candidate = None if verdict.is_settled else await anext(stream, None)
            if candidate is None:
                break
            candidates.append(candidate)
    pairs = sorted(zip(candidates, verdict.weights, strict=True), key=lambda pair: pair[0].path)
    stopped_by = rule.name if len(candidates) < n else ""
    return Drawn([candidate for candidate, _ in pairs], [weight for _, weight in pairs], stopped_by)


async def _solution_classes(context: SearchContext, candidates: Sequence[Candidate]) -> list[int | None]:
    """Return the answer class of every candidate; what is no solution abstains."""
    numbers = iter(await context.answer_classes([candidate for candidate in candidates if candidate.is_solution]))
    return [next(numbers) if candidate.is_solution else None for candidate in candidates]
