"""Hidden states at the ends of labelled steps, computed in shards that are kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import torch
from safetensors.torch import load_file, save

from tts_orch.atomic_file import write_atomically
from tts_orch.records import Problem
from tts_orch.rewards.segment_model import PromptForm
from tts_orch.rewards.segments import Segment, n_tokens_of
from tts_orch.training.base_model import BaseModel
from tts_orch.training.labelled_solutions import LabelledSolution

__all__ = ["LabelledProblem", "StepData", "step_data"]

_PROBLEMS_A_SHARD: Final = 16


class LabelledProblem(NamedTuple):
    """A problem with its labelled solutions."""

    problem: Problem
    solutions: Sequence[LabelledSolution]


class StepData(NamedTuple):
    """Labelled steps.

    Attributes:
        features: `[n, n_features]` float32.
        labels: `[n]` float32.
        problems: `[n]` number of the problem of each.
        is_last: `[n]` whether it is the last one of its solution.
    """

    features: torch.Tensor
    labels: torch.Tensor
    problems: torch.Tensor
    is_last: torch.Tensor

    def part(self, chosen: torch.Tensor) -> StepData:
        """Return the steps for which `chosen` is true."""
        return StepData(*(values[chosen] for values in self))


def step_data(
    problems: Sequence[LabelledProblem],
    form: PromptForm,
    max_tokens: int,
    load_base: Callable[[], BaseModel],
    folder: Path,
    on_problem: Callable[[int], None],
) -> StepData:
    """Return the hidden states at all labelled steps; shards in `folder` are read, missing ones computed and written.

    Args:
        problems: the same ones, in the same order, as when the folder was begun.
        form: how a solution is shown to the base model; the same one too.
        max_tokens: solutions that are longer with their prompts are left out.
        load_base: called if anything is missing.
        folder: made when it is missing.
        on_problem: called with the number of problems that are done.
    """
    folder.mkdir(parents=True, exist_ok=True)
    base: BaseModel | None = None
    shards = []
    for start in range(0, len(problems), _PROBLEMS_A_SHARD):
        file = folder / f"{start:06}.safetensors"
        if not file.exists():
            base = base or load_base()
            shard = _shard(start, problems[start : start + _PROBLEMS_A_SHARD], form, max_tokens, base)
            write_atomically(file, save(shard._asdict()))
        shards.append(StepData(**load_file(file)))
        on_problem(min(start + _PROBLEMS_A_SHARD, len(problems)))
    return _joined(shards)


class _Shown(NamedTuple):
    """A solution as the base model reads it, and the number of its problem."""

    number: int
    segments: Sequence[Segment]
    labels: Sequence[float | None]


def _shard(
    first: int, problems: Sequence[LabelledProblem], form: PromptForm, max_tokens: int, base: BaseModel
) -> StepData:
    shown = [
        _Shown(number, form(problem, solution.steps), solution.labels)
        for number, (problem, solutions) in enumerate(problems, start=first)
        for solution in solutions
    ]
    fitting = [one for one in shown if n_tokens_of(one.segments) <= max_tokens]
    states = base.features([one.segments for one in fitting])
    parts = [_of_solution(one.number, hidden, one.labels) for one, hidden in zip(fitting, states, strict=True)]
    nothing = _of_solution(first, torch.zeros(0, base.n_features), [])
    return _joined([nothing, *parts])


def _of_solution(number: int, states: torch.Tensor, labels: Sequence[float | None]) -> StepData:
    known = [index for index, label in enumerate(labels) if label is not None]
    return StepData(
        features=states[known].clone(),
        labels=torch.tensor([label for label in labels if label is not None], dtype=torch.float32),
        problems=torch.full((len(known),), number),
        is_last=torch.tensor([index == len(labels) - 1 for index in known], dtype=torch.bool),
    )


def _joined(parts: Sequence[StepData]) -> StepData:
    return StepData(*(torch.cat(values) for values in zip(*parts, strict=True)))
