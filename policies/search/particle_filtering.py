"""Particle filtering: partial solutions are drawn by their scores instead of ranked."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.method_config import ParticleFiltering
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.frontier import Shares, search_frontier
from tts_orch.policies.search.step_search import StepSearch
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.seeds import noise_words, stream_seed

__all__ = ["draw_particles", "odds_weights", "particle_filtering"]

_logger = logging.getLogger(__name__)

_LEAST_DOUBT: Final = 1e-7


async def particle_filtering(problem: Problem, context: SearchContext, config: ParticleFiltering) -> SearchResult:
    """Search with n particles: at each depth n are drawn with replacement, in proportion to the odds of their scores.

    Solutions that ended are particles too: they are drawn and held, or not drawn and lost. A partial solution drawn k times
    gets k next steps. It ends when all particles are solutions. Failed candidates, and those that reached their limit without
    an answer, are never drawn; the others stand in. Solutions that could not be scored, at a deadline for instance, are held
    outside the draw.

    Source: arXiv 2502.01618, algorithm 1.
    """

    def select(
        search: StepSearch, held: Sequence[Candidate], children: Sequence[Candidate]
    ) -> tuple[Sequence[Candidate], Shares]:
        viable = [*held, *(child for child in children if child.is_viable)]
        particles = [candidate for candidate in viable if candidate.step_scores]
        unscored = [candidate for candidate in viable if candidate.is_solution and not candidate.step_scores]
        is_spent = any(child.finish_reason is FinishReason.CANCELLED for child in children)
        if is_spent or all(particle.is_solution for particle in particles):  # no draw may lose a solution any more
            return [*(particle for particle in particles if particle.is_solution), *unscored], []
        weights = odds_weights([search.score(particle) for particle in particles], config.softmax_temperature)
        counts = draw_particles(weights, config.n, stream_seed(children[0].seed, 0, "resampling"))
        _report(children[0], weights, counts)
        drawn = [(particle, int(count)) for particle, count in zip(particles, counts, strict=True) if count]
        return (
            [*(particle for particle, count in drawn if particle.is_solution for _ in range(count)), *unscored],
            [(particle, count) for particle, count in drawn if particle.can_continue],
        )

    return await search_frontier(problem, context, config, select)


def odds_weights(scores: Sequence[float], temperature: float) -> NDArray[np.float64]:
    """Return the softmax of the log odds of scores in [0, 1], which are kept away from certainty by 1e-7."""
    chances = np.clip(np.asarray(scores, np.float64), _LEAST_DOUBT, 1 - _LEAST_DOUBT)
    log_odds = np.log(chances / (1 - chances)) / temperature
    weights = np.exp(log_odds - log_odds.max())
    return np.asarray(weights / weights.sum())


def draw_particles(weights: NDArray[np.float64], n: int, seed: int) -> NDArray[np.intp]:
    """Return how often each particle is drawn in n draws with replacement, a function of the seed alone."""
    uniforms = (noise_words(seed, 0, np.arange(n)) + 0.5) / 2.0**32
    bounds = np.cumsum(weights)
    return np.bincount(np.searchsorted(bounds, uniforms * bounds[-1], side="right"), minlength=len(weights))


def _report(child: Candidate, weights: NDArray[np.float64], counts: NDArray[np.intp]) -> None:
    _logger.info(
        "%s, depth %d: effective sample size %.1f, %d of %d particles are distinct",
        child.problem_id,
        child.path[0],
        1 / np.square(weights).sum(),
        np.count_nonzero(counts),
        counts.sum(),
    )
