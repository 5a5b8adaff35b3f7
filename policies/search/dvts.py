"""Diverse verifier tree search: independent subtrees, each of which keeps its best next step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from tts_orch.method_config import DVTS
from tts_orch.policies.search.concurrency import together
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.election import choose
from tts_orch.policies.search.scoring import Look
from tts_orch.policies.search.step_search import StepSearch
from tts_orch.records import Candidate, Problem, SearchResult

__all__ = ["dvts"]


async def dvts(problem: Problem, context: SearchContext, config: DVTS) -> SearchResult:
    """Search n / beam_width subtrees, each at its own pace.

    A next step has the path (subtree, child, child, ...), so that a larger n adds subtrees and changes none.

    Source: Beeching et al., "Scaling test-time compute with open models" (2024), section "DVTS".
    """
    search = await StepSearch.of(problem, context, config)
    subtrees = await together(_grow(search, config, subtree) for subtree in range(config.n // config.beam_width))
    return await choose(problem, config, [candidate for subtree in subtrees for candidate in subtree], context)


async def _grow(search: StepSearch, config: DVTS, subtree: int) -> Sequence[Candidate]:
    """Return what one subtree gives to the answer.

    It ends where its best next step ends the solution, or where no next step could be sampled and scored.
    """
    look = _looking_ahead(search, config) if config.lookahead else None
    prefix = replace(search.root, path=(subtree,))
    for depth in count():
        siblings = await search.next_steps([(prefix, config.beam_width)], depth, look)
        best = next(iter(search.best_first(siblings)), None)
        if best is None or not best.can_continue:
            break
        await search.keep(siblings, [best])
        prefix = search.root.after(best)
    emitted = _emitted(siblings, best, config)
    await search.keep(siblings, emitted)
    return emitted


def _emitted(siblings: Sequence[Candidate], best: Candidate | None, config: DVTS) -> Sequence[Candidate]:
    """Return what is asked for of the last expansion, at least one candidate."""
    if config.emit == "all_siblings":
        return siblings
    solutions = [sibling for sibling in siblings if sibling.is_solution]
    if config.emit == "finished_siblings" and solutions:
        return solutions
    return [best or next(iter(solutions), siblings[0])]


def _looking_ahead(search: StepSearch, config: DVTS) -> Look:
    greedy = replace(search.context.law, temperature=0.0)

    async def look(candidate: Candidate) -> Candidate:
        """Return the candidate some greedy steps further on, or where its solution ends."""
        for _ in range(config.lookahead):
            if not candidate.can_continue:
                break
            place = (*candidate.path, config.beam_width)  # next steps that may be kept have lower numbers
            [following] = await search.sample(search.root.after(candidate, place), 1, law=greedy)
            if not following.is_complete:
                break
            candidate = following
        return candidate

    return look
