"""A reward without a model: how certain the target was of the tokens of each step.

Self-certainty is the mean of KL(uniform || raw law) over tokens (arXiv 2502.18581): 0 where the law is uniform, without an
upper bound. x / (1 + x) makes a score of it, so that the odds of a score are the self-certainty itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.records import Candidate

__all__ = ["certainty_scores"]


def certainty_scores(steps: Sequence[Candidate]) -> list[float]:
    """Return a score in [0, 1] for each step, from the candidates that were sampled for them.

    Args:
        steps: the candidates, each of which goes on from the one before.
    """
    return [1 - 1 / (1 + max(step.self_certainty, 0.0)) for step in steps]
