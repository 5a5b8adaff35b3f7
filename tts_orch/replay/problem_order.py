"""In which order recorded trajectories are replayed, and which of them are decoded together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Literal, TypeAlias

from tts_orch.replay.recording import RecordedTrajectory

__all__ = ["ProblemOrder", "in_order"]

ProblemOrder: TypeAlias = Literal["one_by_one", "alternating", "together"]
"""Whether a problem is replayed to its end before the next one begins, problems take turns by `lockstep` trajectories, or the
trajectories of all problems are one queue."""


def in_order(
    trajectories: Sequence[RecordedTrajectory], lockstep: int, order: ProblemOrder
) -> list[list[RecordedTrajectory]]:
    """Return the queues of trajectories that are decoded together, one queue after the other."""
    if order == "together":
        return [list(trajectories)]
    problems = [list(group) for _, group in groupby(trajectories, lambda recorded: recorded.problem_id)]
    if order == "one_by_one":
        return problems
    n_turns = -(-max(map(len, problems), default=0) // lockstep)
    turns = (problem[turn * lockstep : (turn + 1) * lockstep] for turn in range(n_turns) for problem in problems)
    return [queue for queue in turns if queue]
