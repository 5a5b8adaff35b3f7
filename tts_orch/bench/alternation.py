"""Tau while many problems take turns, beside the same trajectories problem by problem.

If taking turns made a table forget, second trajectories of a problem would lose against those that follow the first at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final, get_args

from tts_orch.bench.methods import new_drafter
from tts_orch.bench.replay_cells import scope_of
from tts_orch.config import DraftingConfig
from tts_orch.json_lines import JsonObject
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.replay.acceptance import StepCount
from tts_orch.replay.problem_order import ProblemOrder
from tts_orch.replay.recording import Recording, problem_and_index
from tts_orch.replay.replayer import replay

__all__ = ["alternation_rows"]

_FIFTHS: Final = 5


def alternation_rows(recording: Recording, config: DraftingConfig) -> list[JsonObject]:
    """Return tau in both orders of the problems: in all, and by trajectory index over fifths of the problems."""
    return [_row(recording, config, order) for order in get_args(ProblemOrder)]


def _row(recording: Recording, config: DraftingConfig, order: ProblemOrder) -> JsonObject:
    drafter = new_drafter(config, recording.vocabulary_size)
    if drafter is None:
        raise ValueError(f"{config.drafter}: drafts nothing")
    scopes = scope_of(config, is_greedy=recording.law.temperature == 0)
    passes = replay(recording, drafter, FixedSize(config.max_nodes), order=order, scope_of=scopes)
    fifths = _fifths(recording)
    total = StepCount()
    counts: defaultdict[int, list[StepCount]] = defaultdict(lambda: [StepCount() for _ in range(_FIFTHS)])
    for step in (step for steps in passes for step in steps):
        problem_id, index = problem_and_index(step.trajectory)
        for count in (total, counts[index][fifths[problem_id]]):
            count.add(len(step.committed))
    by_index = [[count.tau or None for count in of_index] for _, of_index in sorted(counts.items())]
    return {"order": order, "tau": total.tau, "by_index": by_index}


def _fifths(recording: Recording) -> Mapping[str, int]:
    """Return which fifth of the problems each one belongs to."""
    problem_ids = recording.problem_ids
    return {problem_id: _FIFTHS * place // len(problem_ids) for place, problem_id in enumerate(problem_ids)}
