"""Beam search guided by a reward model."""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.method_config import BeamSearch
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.frontier import Shares, holding, search_frontier
from tts_orch.policies.search.step_search import StepSearch
from tts_orch.records import Candidate, Problem, SearchResult

__all__ = ["beam_search"]


async def beam_search(problem: Problem, context: SearchContext, config: BeamSearch) -> SearchResult:
    """Search by the best partial solutions of each depth, `beam_width` next steps of each.

    A solution that ends is held with its score: it is neither dropped nor repeated, and takes one of the n places. The
    others go to the next steps of the ceil(places / beam_width) best partial solutions, the last of which may get fewer.

    Source: arXiv 2408.03314.
    """

    def share(search: StepSearch, ranked: Sequence[Candidate], places: int) -> Shares:
        n_beams = -(-places // config.beam_width)
        return [
            (candidate, min(config.beam_width, places - config.beam_width * rank))
            for rank, candidate in enumerate(ranked[:n_beams])
        ]

    return await search_frontier(problem, context, config, holding(share))
