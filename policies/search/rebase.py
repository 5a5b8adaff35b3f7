"""Reward-balanced search (REBASE)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from tts_orch.method_config import Rebase
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.frontier import Shares, holding, search_frontier
from tts_orch.policies.search.step_search import StepSearch
from tts_orch.records import Candidate, Problem, SearchResult

__all__ = ["balanced_widths", "rebase"]

_ROUNDING: Final = 1e-9  # a share that is whole but for rounding is not rounded up


async def rebase(problem: Problem, context: SearchContext, config: Rebase) -> SearchResult:
    """Search by sharing the next steps of each depth out over the partial solutions, more to the better ones.

    A solution that ends is held and takes one of the n places.

    Source: arXiv 2408.00724.
    """

    def share(search: StepSearch, ranked: Sequence[Candidate], places: int) -> Shares:
        widths = balanced_widths([search.score(candidate) for candidate in ranked], places, config.softmax_temperature)
        return [(candidate, width) for candidate, width in zip(ranked, widths, strict=True) if width]

    return await search_frontier(problem, context, config, holding(share))


def balanced_widths(scores: Sequence[float], width: int, temperature: float) -> list[int]:
    """Share `width` next steps out by the softmax of scores, rounding in favour of the best.

    Args:
        scores: best first.
        width: next steps to share out.
        temperature: of the softmax.

    Returns:
        Next steps of each; they sum to `width` unless there is nothing to share out to.
    """
    shares = [math.exp((score - scores[0]) / temperature) for score in scores]
    widths: list[int] = []
    for rank, share in enumerate(shares):
        exact = (width - sum(widths)) * share / math.fsum(shares[rank:])
        widths.append(math.ceil(exact - _ROUNDING))
    return widths
