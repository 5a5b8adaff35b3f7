"""DeepConf: candidates that lose their confidence on the way are cut, or do not vote.

Source: arXiv 2508.15260.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tts_orch.policies.voting import count_votes
from tts_orch.records import Candidate
from tts_orch.stopping_config import TraceScore

__all__ = ["confidence_threshold", "has_consensus", "trace_score", "vote_weights"]


def trace_score(candidate: Candidate, how: TraceScore) -> float:
    """Return the confidence of a whole candidate; every kind but the mean needs that it was sampled with a window."""
    match how:
        case "mean":
            return candidate.confidence
        case "tail":
            return candidate.tail_confidence
        case "bottom":
            return candidate.bottom_confidence
        case "lowest":
            return candidate.lowest_confidence


def confidence_threshold(candidates: Sequence[Candidate], how: TraceScore, keep_percent: float) -> float:
    """Return the least score of the most confident share of the solutions among some candidates; 0 without a solution."""
    scores = [trace_score(candidate, how) for candidate in candidates if candidate.is_solution]
    return float(np.percentile(scores, 100 - keep_percent)) if scores else 0.0


def vote_weights(candidates: Sequence[Candidate], how: TraceScore, least: float) -> list[float]:
    """Return the weight of each candidate's vote: its score; 0 for one below the least score, and for what is no solution."""
    scores = [trace_score(candidate, how) if candidate.is_solution else 0.0 for candidate in candidates]
    return [score if score >= least else 0.0 for score in scores]


def has_consensus(classes: Sequence[int | None], weights: Sequence[float], share: float) -> bool:
    """Whether one answer class has at least this share of the votes; None abstains, and nobody's vote is no consensus."""
    heaviest_first = list(count_votes(classes, weights, weights).weights.values())
    total = math.fsum(heaviest_first)
    return total > 0 and heaviest_first[0] >= share * total
