"""Hidden states at the ends of labelled steps, computed in shards that are kept on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import torch
from safetensors.torch import load_file, save

from tts_orch.atomic_file import write_atomically
from tts_orch.records import IntArray, Problem
from tts_orch.rewards.step_encoding import EncodedSteps
from tts_orch.training.base_model import BaseModel
from tts_orch.training.labelled_solutions import LabelledSolution

__all__ = ["LabelledProblem", "StepData", "StepEncoder", "step_data"]

_PROBLEMS_A_SHARD: Final = 16
_SOLUTIONS_A_PASS: Final = 16


class LabelledProblem(NamedTuple):
    """A problem with its labelled solutions."""

    problem: Problem
    solutions: Sequence[LabelledSolution]


@dataclass(frozen=True, slots=True)
class StepEncoder:
    """From texts to tokens, as they will be when the head is used.

    Attributes:
        prompt: renders a problem.
        steps: encodes the steps of a solution.
        max_tokens: solutions that are longer with their prompts are left out.
    """

    prompt: Callable[[Problem], IntArray]
    steps: Callable[[Sequence[str]], EncodedSteps]
    max_tokens: int


class StepData(NamedTuple):
    """Labelled steps.

    Attributes:
        features: `[n, hidden_size]` float32.
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
    encoder: StepEncoder,
    load_base: Callable[[], BaseModel],
    folder: Path,
    on_problem: Callable[[int], None],
) -> StepData:
    """Return the hidden states at all labelled steps; shards in `folder` are read, missing ones computed and written.

    Args:
        problems: the same ones, in the same order, as when the folder was begun.
        encoder: the same one too.
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
            shard = _shard(start, problems[start : start + _PROBLEMS_A_SHARD], encoder, base)
            write_atomically(file, save(shard._asdict()))
        shards.append(StepData(**load_file(file)))
        on_problem(min(start + _PROBLEMS_A_SHARD, len(problems)))
    return _joined(shards)


def _shard(first: int, problems: Sequence[LabelledProblem], encoder: StepEncoder, base: BaseModel) -> StepData:
    numbered = enumerate(problems, start=first)
    parts = [part for number, problem in numbered for part in _of_problem(number, problem, encoder, base)]
    nothing = _of_solution(first, torch.zeros(0, base.hidden_size), [])
    return _joined([nothing, *parts])


def _of_problem(number: int, problem: LabelledProblem, encoder: StepEncoder, base: BaseModel) -> Iterator[StepData]:
    prompt = encoder.prompt(problem.problem)
    encoded = [(encoder.steps(solution.steps), solution.labels) for solution in problem.solutions]
    fitting = [one for one in encoded if len(prompt) + len(one[0].token_ids) <= encoder.max_tokens]
    for start in range(0, len(fitting), _SOLUTIONS_A_PASS):
        batch = fitting[start : start + _SOLUTIONS_A_PASS]
        states = base.hidden_states(prompt, [steps.token_ids for steps, _ in batch])
        for hidden, (steps, labels) in zip(states, batch, strict=True):
            yield _of_solution(number, hidden[list(steps.ends)], labels)


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
