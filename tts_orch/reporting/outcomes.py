"""What became of one problem: how far its candidates agree, and what kind of success or failure it is."""

from __future__ import annotations

import enum
from collections import Counter

from tts_orch.results import ProblemResult

__all__ = ["Outcome", "agreement", "outcomes"]


class Outcome(str, enum.Enum):
    """What a problem can be looked up by."""

    WRONG = "wrong"
    """The answer is wrong, or there is none."""
    MISSED = "missed"
    """The answer is wrong though some candidate is right."""
    OUTVOTED = "outvoted"
    """Some candidate is right, but right answers are not the most frequent ones, or tied with others."""
    UNANSWERED = "unanswered"
    """There is no answer."""

    __str__ = str.__str__


def agreement(result: ProblemResult) -> float:
    """Return the share of the candidates that give the most frequent answer; all count, those without an answer too."""
    votes = _votes(result)
    return max(votes.values(), default=0) / max(result.n_candidates, 1)


def outcomes(result: ProblemResult) -> set[Outcome]:
    """Return all that is true of a problem."""
    is_wrong, has_right = result.correct is False, any(result.candidate_correct)
    found = {
        Outcome.WRONG: is_wrong,
        Outcome.MISSED: is_wrong and has_right,
        Outcome.OUTVOTED: has_right and _is_outvoted(result),
        Outcome.UNANSWERED: result.answer is None,
    }
    return {outcome for outcome, is_so in found.items() if is_so}


def _is_outvoted(result: ProblemResult) -> bool:
    pairs = zip(result.candidate_classes, result.candidate_correct, strict=True)
    others = Counter(number for number, is_correct in pairs if number is not None and not is_correct)
    return max(others.values(), default=0) >= sum(result.candidate_correct)


def _votes(result: ProblemResult) -> Counter[int]:
    return Counter(number for number in result.candidate_classes if number is not None)
