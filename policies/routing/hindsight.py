"""The choice between domain drafters that needs the finished answer of each: for comparison with published figures alone.

Source: arXiv 2603.27027: a question is drafted by each drafter alone, and counted for the one that was surer over the whole
generation; near ties go to a drafter trained on a mixture of the domains. Confidence is the paper's here, the mean
probability of a tree's nodes given the root; so trees should be of one size.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["NEAR_TIE", "chosen_in_hindsight"]

NEAR_TIE: Final = 0.01
"""Difference in confidence below which neither drafter is chosen."""


def chosen_in_hindsight(confidences: Mapping[str, float], mixed: str | None = None) -> str:
    """Return the drafter that a question is counted for.

    Args:
        confidences: mean confidence of each drafter's trees over a finished generation of its own; at least one drafter.
        mixed: who gets the near ties between the two surest; None for the surer one all the same, of equals the first.
    """
    ranking = sorted(confidences, key=lambda drafter: -confidences[drafter])
    is_near_tie = len(ranking) > 1 and confidences[ranking[0]] - confidences[ranking[1]] < NEAR_TIE
    return mixed if is_near_tie and mixed is not None else ranking[0]
