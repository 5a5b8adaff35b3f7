"""Let the reward model score candidates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from tts_orch.policies.search.concurrency import together
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate

__all__ = ["Look", "score_candidates"]

_logger = logging.getLogger(__name__)

Look: TypeAlias = Callable[[Candidate], Coroutine[Any, Any, Candidate]]
"""From a candidate to the one that is scored in its place."""


async def score_candidates(
    candidates: Sequence[Candidate], context: SearchContext, look_ahead: Look | None = None
) -> list[Candidate]:
    """Return the candidates with their step scores; failed ones have none.

    Candidates of the same tokens are scored once.
    """
    first: dict[tuple[int, ...], Candidate] = {}
    for candidate in candidates:
        if candidate.is_complete:
            first.setdefault(candidate.token_ids, candidate)
    shown = await together(map(look_ahead, first.values())) if look_ahead else list(first.values())
    scores = dict(zip(first, await context.score(shown), strict=True)) if shown else {}
    n_unscored = sum(not steps for steps in scores.values())
    if n_unscored:
        _logger.warning("%s: %d of %d could not be scored", candidates[0].problem_id, n_unscored, len(scores))
    return [
        replace(candidate, step_scores=tuple(scores[candidate.token_ids])) if candidate.is_complete else candidate
        for candidate in candidates
    ]
