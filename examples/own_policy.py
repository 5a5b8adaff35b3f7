"""A search policy of your own: sample two candidates, and more only if they disagree.

    python examples/own_policy.py "What is 17 * 23?"

A policy is an async function of a problem and a context. It needs no model to be tried: see
`tts_orch.testing.FakeSearchContext`, and `tests/unit/test_examples.py` for this very policy in it. A package makes it known
to the command line, as `tts-orch run ... --method own --policy until_agreed`, by an entry point in its pyproject.toml:

    [project.entry-points."tts_orch.search_policies"]
    until_agreed = "my_package:ask_until_agreed"
"""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import aclosing
from dataclasses import replace

from tts_orch import Orchestrator
from tts_orch.method_config import OwnMethod
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, Problem, SearchResult


async def ask_until_agreed(problem: Problem, context: SearchContext, config: OwnMethod | None = None) -> SearchResult:
    """Sample two candidates, and up to n if more than half do not agree; the largest group has the answer."""
    root = await context.root(problem)
    candidates: list[Candidate] = []
    for number, n in enumerate((2, (config.n if config else 8) - 2)):
        place = replace(root, path=(number,))  # a path of its own for each round, hence seeds of its own
        async with aclosing(context.sample([place], n=n)) as stream:
            candidates += [candidate async for candidate in stream]
        candidates.sort(key=lambda candidate: candidate.path)
        solutions = [candidate for candidate in candidates if candidate.is_solution]
        classes = await context.answer_classes(solutions)
        votes = Counter(group for group in classes if group is not None)
        [(winner, n_votes)] = votes.most_common(1) or [(None, 0)]
        if 2 * n_votes > len(candidates):
            break
    if winner is None:
        return SearchResult(problem.id, "ask_until_agreed", None, candidates)
    chosen = solutions[classes.index(winner)]
    return SearchResult(problem.id, "ask_until_agreed", chosen.answer, candidates, chosen.path)


def main(prompt: str = "What is 17 * 23?") -> None:
    """Search with the demo model."""
    with Orchestrator(target="smollm2") as orchestrator:
        result = orchestrator.search(prompt, method=ask_until_agreed, seed=0)
    print(f"{result.answer} by {len(result.candidates)} candidates")


if __name__ == "__main__":
    main(*sys.argv[1:2])
