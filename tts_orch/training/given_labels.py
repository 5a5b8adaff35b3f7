"""Read solutions whose steps somebody has labelled: JSON lines of `id`, `prompt`, `steps` and `step_labels`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tts_orch.errors import ProblemError
from tts_orch.records import Problem
from tts_orch.tasks.object_lines import read_objects
from tts_orch.training.labelled_solutions import LabelledSolution

__all__ = ["GivenSolution", "read_labelled_solutions"]

_TEST_SET: Final = "in_"  # flags such as in_math500: the problem belongs to a public test set


class GivenSolution(NamedTuple):
    """One line of the file.

    Attributes:
        problem: what is solved.
        solution: steps and labels.
        is_test_problem: whether the line says that its problem is in a public test set.
    """

    problem: Problem
    solution: LabelledSolution
    is_test_problem: bool


def read_labelled_solutions(path: Path) -> list[GivenSolution]:
    """Read a file of labelled solutions.

    `step_labels` has a number from 0 (wrong) to 1 (right) for every step, null where nobody judged. A true flag whose name
    begins with `in_` says that the problem is in a test set. Other fields are ignored.

    Raises:
        ProblemError: the file cannot be read or has no solution, or a line is malformed: `file:line: what; what to do`.
    """
    solutions = read_objects(path, _given_solution)
    if not solutions:
        raise ProblemError(
            f"{path}: no solution in the file; give a JSON object with steps and step_labels on every line"
        )
    return solutions


def _given_solution(fields: Mapping[str, Any]) -> GivenSolution:
    """Check one line; a ValueError says what is wrong and what to do."""
    texts = (fields.get("id"), fields.get("prompt"))
    if not all(isinstance(text, str) and text for text in texts):
        raise ValueError("`id` and `prompt` must be texts; give both")
    steps, labels = fields.get("steps"), fields.get("step_labels")
    if not (isinstance(steps, list) and all(isinstance(step, str) for step in steps)):
        raise ValueError("`steps` must be a list of texts; give one for each step")
    if not (isinstance(labels, list) and len(labels) == len(steps) and all(map(_is_label, labels))):
        raise ValueError("`step_labels` must have an entry for each step; give a number from 0 to 1, or null")
    problem = Problem(fields["id"], fields["prompt"])
    return GivenSolution(problem, LabelledSolution(problem.id, tuple(steps), tuple(labels)), any(_test_flags(fields)))


def _is_label(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and 0 <= value <= 1)


def _test_flags(fields: Mapping[str, Any]) -> Iterator[bool]:
    return (value is True for name, value in fields.items() if name.startswith(_TEST_SET))
