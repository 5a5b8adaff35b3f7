"""Sample solutions of a problem, and completions of them from the end of every step: no more than a search policy.

Source: Math-Shepherd, arXiv 2312.08935, section 3.2.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.sampling import collect
from tts_orch.records import Candidate, Prefix, Problem, SearchResult
from tts_orch.training.settings import RolloutSettings

__all__ = ["Generate", "Policy", "StepEnds", "rollout_policy"]

Policy: TypeAlias = Callable[[Problem, SearchContext], Awaitable[SearchResult]]

Generate: TypeAlias = Callable[[Sequence[Problem], Policy], Generator[SearchResult, None, None]]
"""Runs a policy over problems and yields results as they come; closing it cancels the rest."""

StepEnds: TypeAlias = Callable[[Candidate], Sequence[int]]
"""After how many tokens each step of a solution is complete."""


def rollout_policy(settings: RolloutSettings, ends: StepEnds) -> Policy:
    """Return a policy that samples solutions, then rollouts from every prefix that ends with a step.

    Solutions have the paths `(i,)`, the rollouts after step k (from 1) of solution i `(i, k, j)`. Solutions that begin alike
    share their rollouts. The last step of a solution needs none: its outcome is known.
    """

    async def sample_rollouts(problem: Problem, context: SearchContext) -> SearchResult:
        root = await context.root(problem)
        solutions = await collect(context, [root], settings.solutions)
        prefixes = _step_prefixes(root, solutions, ends)
        rollouts = await collect(context, prefixes, settings.rollouts) if prefixes else []
        return SearchResult(problem.id, "rollouts", None, [*solutions, *rollouts])

    return sample_rollouts


def _step_prefixes(root: Prefix, solutions: Sequence[Candidate], ends: StepEnds) -> list[Prefix]:
    """Return one prefix for each way in which solutions begin, up to the end of a step that is not their last."""
    prefixes: dict[tuple[int, ...], Prefix] = {}
    for solution in solutions:
        inner_ends = ends(solution)[:-1] if solution.is_solution else ()
        for number, end in enumerate(inner_ends, start=1):
            start = replace(solution, token_ids=solution.token_ids[:end])
            prefixes.setdefault(start.token_ids, root.after(start, path=(*solution.path, number)))
    return list(prefixes.values())
