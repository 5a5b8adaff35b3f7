"""Rewards without a model: what the target itself said of the tokens of each step while it sampled them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, TypeAlias

from tts_orch.records import Candidate

__all__ = ["OWN_SCORES", "OwnScores", "certainty_scores", "likelihood_scores"]

OwnScores: TypeAlias = Callable[[Sequence[Candidate]], list[float]]
"""From the candidates that were sampled for the steps, each of which goes on from the one before, to a score for each."""


def certainty_scores(steps: Sequence[Candidate]) -> list[float]:
    """Score each step by how certain the target was of its tokens.

    Self-certainty is the mean of KL(uniform || raw law) over tokens: 0 where the law is uniform, without an upper bound.
    x / (1 + x) makes a score of it, so that the odds of a score are the self-certainty itself.

    Source: arXiv 2502.18581.
    """
    return [1 - 1 / (1 + max(step.self_certainty, 0.0)) for step in steps]


def likelihood_scores(steps: Sequence[Candidate]) -> list[float]:
    """Score each step by how likely the target finds all tokens up to its end: the geometric mean of their probabilities.

    That is one over the perplexity, from the raw law at temperature 1.
    """
    log_probs = accumulate(step.log_prob for step in steps)
    counts = accumulate(step.n_new for step in steps)
    return [math.exp(min(total / max(count, 1), 0.0)) for total, count in zip(log_probs, counts, strict=True)]


OWN_SCORES: Final[Mapping[str, OwnScores]] = {"self_certainty": certainty_scores, "likelihood": likelihood_scores}
"""By kind of reward."""
