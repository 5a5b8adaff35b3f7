"""How well scores tell good steps from bad ones."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.training.labelled_solutions import GOOD

__all__ = ["StepVerdicts", "area_under_curve", "judge_scores"]


@dataclass(frozen=True, slots=True)
class StepVerdicts:
    """Figures of one set of steps; None where there is nothing to compare.

    Attributes:
        steps: how many there are.
        good_share: share of good ones; accuracy without any knowledge is this or its complement, whichever is larger.
        accuracy: share of steps whose score is on the right side of 0.5.
        auc: probability that a good step has a higher score than a bad one, ties counted half.
        auc_within_problems: the same, over pairs of steps of one problem: what a search chooses between.
    """

    steps: int
    good_share: float | None
    accuracy: float | None
    auc: float | None
    auc_within_problems: float | None


def judge_scores(
    scores: NDArray[np.floating], labels: NDArray[np.floating], problems: NDArray[np.integer]
) -> StepVerdicts:
    """Return the figures.

    Args:
        scores: `[n]` in [0, 1].
        labels: `[n]` in [0, 1].
        problems: `[n]` number of the problem of each step.
    """
    is_good = labels >= GOOD
    n_steps = len(scores)
    return StepVerdicts(
        steps=n_steps,
        good_share=float(is_good.mean()) if n_steps else None,
        accuracy=float(((scores >= GOOD) == is_good).mean()) if n_steps else None,
        auc=area_under_curve(scores, is_good, np.zeros(n_steps, np.int64)),
        auc_within_problems=area_under_curve(scores, is_good, problems),
    )


def area_under_curve(
    scores: NDArray[np.floating], is_good: NDArray[np.bool_], groups: NDArray[np.integer]
) -> float | None:
    """Return the share of (good, bad) pairs of one group in which the good one has the higher score; None without pairs."""
    n_pairs, n_ordered = 0, 0.0
    for group in np.unique(groups):
        good = scores[(groups == group) & is_good]
        bad = np.sort(scores[(groups == group) & ~is_good])
        below = np.searchsorted(bad, good, side="left")
        not_above = np.searchsorted(bad, good, side="right")
        n_pairs += len(good) * len(bad)
        n_ordered += float((below + not_above).sum()) / 2
    return n_ordered / n_pairs if n_pairs else None
