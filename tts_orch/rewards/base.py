"""What every reward model is: solutions in, a probability a step out.

A reward model knows nothing of search, of Ray, or of who asks; the same solutions give the same scores up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from tts_orch.records import Problem

__all__ = ["DEFAULT_DELIMITERS", "RewardModel", "ScoreFunction", "Solution", "StepScores"]

DEFAULT_DELIMITERS: Final = ("\n\n",)

ScoreFunction: TypeAlias = Callable[[Problem, Sequence[str]], Sequence[float]]
"""A user's own reward: problem and steps in, a probability for each step (or one for all of them) out."""


@dataclass(frozen=True, slots=True)
class Solution:
    """A solution, whole or as far as it goes.

    Attributes:
        problem: what it solves.
        text: decoded output.
    """

    problem: Problem
    text: str


@dataclass(frozen=True, slots=True)
class StepScores:
    """What a reward model says of one solution.

    Attributes:
        scores: probabilities in [0, 1], one a step in order; one in all for models that judge outcomes; none where the
            solution has no step or could not be scored.
        n_tokens: tokens that the model read for it.
        n_tokens_whole: tokens that it would have read without what it kept of earlier readings.
        failure: why it could not be scored; empty where it was.
    """

    scores: tuple[float, ...] = ()
    n_tokens: int = 0
    n_tokens_whole: int = 0
    failure: str = ""

    @classmethod
    def checked(cls, scores: Sequence[float], n_tokens: int = 0, n_tokens_whole: int = 0) -> StepScores:
        """Return scores, or the failure that they are: policies multiply them, take their odds and vote by them."""
        if all(0 <= score <= 1 for score in scores):  # false for what is not a number
            return cls(tuple(map(float, scores)), n_tokens, n_tokens_whole)
        wrong = next(score for score in scores if not 0 <= score <= 1)
        return cls((), n_tokens, n_tokens_whole, f"the score {wrong} is no probability")


class RewardModel(Protocol):
    """Scores solutions."""

    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the scores of each solution; one that cannot be scored has none and a `failure`, and harms no other."""
        ...
