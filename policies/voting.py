"""From step scores to a score, and from answer classes to a winner."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tts_orch.method_config import Aggregation

__all__ = ["Vote", "aggregate", "borda_weights", "count_votes"]


@dataclass(frozen=True, slots=True)
class Vote:
    """The outcome of a vote.

    Attributes:
        weights: weight by class, the winner first.
        representatives: index of each class's best-scored candidate, in the same order.
    """

    weights: Mapping[int, float]
    representatives: Mapping[int, int]

    @property
    def winner(self) -> int | None:
        """The heaviest class, None when every candidate abstained."""
        return next(iter(self.weights), None)


def count_votes(classes: Sequence[int | None], weights: Sequence[float], scores: Sequence[float]) -> Vote:
    """Add up the weights of every answer class.

    Ties between classes go to the highest summed score, then to the lowest candidate index. Sums are exact before they are
    rounded, so nothing else depends on the order of the candidates.

    Args:
        classes: class number of each candidate, None for an abstention, which never votes.
        weights: non-negative weight of each candidate.
        scores: score of each candidate; chooses representatives (ties to the lowest index) and breaks ties.
    """
    members: dict[int, list[int]] = {}
    for index, number in enumerate(classes):
        if number is not None:
            members.setdefault(number, []).append(index)
    weight = {number: math.fsum(weights[i] for i in group) for number, group in members.items()}
    score = {number: math.fsum(scores[i] for i in group) for number, group in members.items()}
    order = sorted(members, key=lambda number: (-weight[number], -score[number], members[number][0]))
    best = {number: max(members[number], key=lambda i: scores[i]) for number in order}
    return Vote({number: weight[number] for number in order}, best)


def aggregate(step_scores: Sequence[float], how: Aggregation) -> float | None:
    """Reduce the step scores of a candidate to one score.

    The product and the minimum fall with the number of steps: they compare candidates of different lengths unequally.

    Args:
        step_scores: probabilities in [0, 1], one a step, in order.
        how: the last score, the smallest, their product or their mean.

    Returns:
        A score in [0, 1], None for no steps: such a candidate must never win.

    Source: arXiv 2305.20050 (product), arXiv 2312.08935 (minimum), arXiv 2408.03314 (last).
    """
    if not step_scores:
        return None
    match how:
        case "last":
            return step_scores[-1]
        case "min":
            return min(step_scores)
        case "prod":
            return math.prod(step_scores)
        case "mean":
            return math.fsum(step_scores) / len(step_scores)


def borda_weights(scores: Sequence[float], power: float = 1.0) -> list[float]:
    """Return the weight (N - rank + 1) ** power of each of N candidates, rank 1 for the highest score.

    Equal scores are ranked by index. Power 0 is a plain majority vote.

    Source: arXiv 2502.18581, section 4 (Borda voting with self-certainty).
    """
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # stable: ties keep their order
    weights = [0.0] * len(scores)
    for place, index in enumerate(order):
        weights[index] = float(len(scores) - place) ** power
    return weights
