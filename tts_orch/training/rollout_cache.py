"""Rollouts and their labels on disk: what is labelled already is not sampled again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tts_orch.errors import RunFolderError
from tts_orch.json_lines import JsonLinesFile, read_json_lines
from tts_orch.records import Problem, SearchResult
from tts_orch.training.labelled_solutions import LabelledSolution
from tts_orch.training.rollouts import Generate, Policy

__all__ = ["RolloutLabels", "collect_labels"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RolloutLabels:
    """What was sampled for one problem.

    Attributes:
        solutions: with labels.
        generated_tokens: what they took.
    """

    solutions: tuple[LabelledSolution, ...]
    generated_tokens: int

    def to_json(self, problem_id: str) -> dict[str, Any]:
        """Return one line of the file."""
        solutions = [solution.to_json() for solution in self.solutions]
        return {"problem_id": problem_id, "generated_tokens": self.generated_tokens, "solutions": solutions}


def collect_labels(
    problems: Sequence[Problem],
    generate: Generate,
    policy: Policy,
    label: Callable[[Problem, SearchResult], Sequence[LabelledSolution]],
    file: Path,
    on_problem: Callable[[int], None],
) -> list[RolloutLabels]:
    """Return the labels of every problem, in order; those of earlier calls are read from `file`, new ones appended.

    A problem with failed samples is left out, and done again by the next call.

    Args:
        problems: with answers.
        generate: runs the policy over problems, called if any is missing.
        policy: samples.
        label: from what was sampled to labels.
        file: made when it is missing.
        on_problem: called with the number of problems that are done.

    Raises:
        RunFolderError: a line of the file is damaged.
    """
    done = _read(file)
    pending = {problem.id: problem for problem in problems if problem.id not in done}
    on_problem(len(problems) - len(pending))
    if pending:
        with closing(JsonLinesFile(file)) as lines, closing(generate(list(pending.values()), policy)) as results:
            for result in results:
                if _has_failed(result):
                    logger.warning("problem %s: some samples failed; it is left out", result.problem_id)
                    continue
                labels = RolloutLabels(tuple(label(pending[result.problem_id], result)), result.generated_tokens)
                lines.append(labels.to_json(result.problem_id))
                done[result.problem_id] = labels
                on_problem(sum(problem.id in done for problem in problems))
    return [done.get(problem.id, RolloutLabels((), 0)) for problem in problems]


def _has_failed(result: SearchResult) -> bool:
    return not all(candidate.is_complete for candidate in result.candidates)


def _read(file: Path) -> dict[str, RolloutLabels]:
    return dict(_parse(f"{file}:{line.number}", line.values) for line in read_json_lines(file))


def _parse(place: str, values: Mapping[str, Any]) -> tuple[str, RolloutLabels]:
    try:
        solutions = tuple(LabelledSolution.from_json(solution) for solution in values["solutions"])
        return values["problem_id"], RolloutLabels(solutions, int(values["generated_tokens"]))
    except (KeyError, TypeError):
        raise RunFolderError(f"{place}: no labelled problem; delete the line to have it done again") from None
