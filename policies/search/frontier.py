"""Searches whose partial solutions compete: all of a depth are scored before it is decided which go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tts_orch.method_config import StepwiseMethod
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.election import choose
from tts_orch.policies.search.step_search import StepSearch
from tts_orch.records import Candidate, Prefix, Problem, SearchResult

__all__ = ["Select", "Share", "Shares", "holding", "search_frontier"]

Shares: TypeAlias = Sequence[tuple[Candidate, int]]
"""Partial solutions to go on from, and how many next steps each gets."""

Select: TypeAlias = Callable[[StepSearch, Sequence[Candidate], Sequence[Candidate]], tuple[Sequence[Candidate], Shares]]
"""From the solutions held so far and the new candidates of a depth, failed ones included, to the solutions held from now on
and the shares of the next depth."""

Share: TypeAlias = Callable[[StepSearch, Sequence[Candidate], int], Shares]
"""From partial solutions, best first, and the places there are for next steps to their shares."""


async def search_frontier(
    problem: Problem, context: SearchContext, config: StepwiseMethod, select: Select
) -> SearchResult:
    """Search depth by depth: n next steps of the prompt, and then as `select` shares them out.

    Next steps have the path (depth, slot, child), a slot for each partial solution that goes on. The result has the
    solutions held in the end, each once; where there is none, what the last depth came to.
    """
    search = await StepSearch.of(problem, context, config)
    places: list[tuple[Prefix, int]] = [(replace(search.root, path=(0, 0)), config.n)]
    held: Sequence[Candidate] = ()
    children: list[Candidate] = []
    for depth in range(config.max_steps):
        children = await search.next_steps(places, depth)
        held, shares = select(search, held, children)
        await search.keep(children, [*held, *(candidate for candidate, _ in shares)])
        if not shares:
            break
        by_path = sorted(shares, key=lambda share: share[0].path)
        places = [(search.root.after(parent, (depth + 1, slot)), n) for slot, (parent, n) in enumerate(by_path)]
    solutions = {candidate.path: candidate for candidate in held}
    return await choose(problem, config, [solutions[path] for path in sorted(solutions)] or children, context)


def holding(share: Share) -> Select:
    """Return the selection that holds every solution, in one of the n places, and shares the others out."""

    def select(
        search: StepSearch, held: Sequence[Candidate], children: Sequence[Candidate]
    ) -> tuple[Sequence[Candidate], Shares]:
        solutions = [*held, *(child for child in children if child.is_solution)]
        ranked = search.best_first(child for child in children if child.can_continue)
        return solutions, share(search, ranked, search.config.n - len(solutions))

    return select
