"""All that a head is trained and judged on: problems with labelled solutions, each in one of the two parts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tts_orch.errors import ProblemError
from tts_orch.records import Problem
from tts_orch.tasks.problems import read_problems
from tts_orch.training.given_labels import read_labelled_solutions
from tts_orch.training.rollout_cache import RolloutLabels
from tts_orch.training.settings import RewardTrainingConfig
from tts_orch.training.step_features import LabelledProblem

__all__ = ["LabelledData", "content_hash", "given_data", "rollout_data"]


class LabelledData(NamedTuple):
    """Problems with labelled solutions.

    Attributes:
        problems: all of them.
        is_held_out: whether each is for the evaluation alone.
        provenance: where the labels come from.
    """

    problems: Sequence[LabelledProblem]
    is_held_out: Sequence[bool]
    provenance: Mapping[str, Any]


def given_data(config: RewardTrainingConfig, path: Path) -> LabelledData:
    """Return labels from a file; problems of public test sets, and a share of the others, are held out.

    Raises:
        ProblemError: a malformed file.
    """
    given = read_labelled_solutions(path)[: config.limit]
    test_prompts = {one.problem.prompt for one in given if one.is_test_problem}
    return LabelledData(
        [LabelledProblem(one.problem, [one.solution]) for one in given],
        [one.problem.prompt in test_prompts or _is_drawn(one.problem, config.held_out) for one in given],
        {"labels": "given", "file": path.name, "sha256": content_hash(path), "solutions": len(given)},
    )


def rollout_data(
    config: RewardTrainingConfig, path: Path, collect: Callable[[Path, Sequence[Problem]], list[RolloutLabels]]
) -> LabelledData:
    """Return labels from rollouts of the target.

    Args:
        config: all settings.
        path: of the problems.
        collect: labels problems of a file.

    Raises:
        ProblemError: a malformed file, or a problem without an answer.
    """
    is_by_reference = config.rollout.estimate == "reference"
    problems = _with_answers(path, is_by_reference)[: config.limit]
    held_out = _with_answers(config.held_out_problems, is_by_reference) if config.held_out_problems else []
    everything = [*problems, *held_out]
    if len({problem.id for problem in everything}) < len(everything):
        raise ProblemError(f"{config.held_out_problems}: ids of {path} again; give every problem an id of its own")
    labels = collect(path, problems)
    if config.held_out_problems is not None:
        labels += collect(config.held_out_problems, held_out)
    is_held_out = [bool(not held_out and _is_drawn(problem, config.held_out)) for problem in problems]
    provenance = {
        "labels": "solutions of the base model",
        "file": path.name,
        "sha256": content_hash(path),
        "problems": len(everything),
        **config.rollout.model_dump(),
        "law": config.law.model_dump(),
        "generated_tokens": sum(one.generated_tokens for one in labels),
    }
    return LabelledData(
        [LabelledProblem(problem, one.solutions) for problem, one in zip(everything, labels, strict=True)],
        [*is_held_out, *(True for _ in held_out)],
        provenance,
    )


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file that can be read."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _with_answers(path: Path, is_by_reference: bool) -> list[Problem]:
    problems = read_problems(path)
    for problem in problems:
        if problem.answer is None:
            raise ProblemError(f"{path}: problem {problem.id!r} has no answer; rollouts are judged by it, so give one")
        if is_by_reference and problem.step_answers is None:
            raise ProblemError(f"{path}: problem {problem.id!r} has no step_answers; give them, or another estimate")
    return problems


def _is_drawn(problem: Problem, share: float) -> bool:
    """Whether a problem falls into a share of all; decided by its text, so that its copies stay together."""
    text = problem.prompt if problem.prompt is not None else repr(problem.messages)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") < share * 2**64
