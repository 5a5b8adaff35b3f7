"""From sampled outcomes to step labels.

Source: Math-Shepherd, arXiv 2312.08935, equations 3 and 4.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.records import Candidate, Problem
from tts_orch.rewards.steps import split_steps
from tts_orch.tasks.answers import grade_for
from tts_orch.training.labelled_solutions import LabelledSolution
from tts_orch.training.rollouts import StepEnds
from tts_orch.training.settings import RolloutSettings

__all__ = ["label_steps"]


def label_steps(
    problem: Problem,
    candidates: Sequence[Candidate],
    settings: RolloutSettings,
    ends: StepEnds,
    delimiters: Sequence[str],
) -> list[LabelledSolution]:
    """Label the steps of all sampled solutions, rollouts included, by the outcomes of all that begin with the same tokens.

    Each of those is a sample of what follows the step, whatever it was sampled for. A step gets a label once, from the first
    solution that has it, and only if enough samples pass through it; the last step of a solution always has enough.

    Args:
        problem: has the right answer.
        candidates: solutions and rollouts, solutions first.
        settings: how many samples are enough, and what is made of them.
        ends: where the steps of a solution end.
        delimiters: texts that end a step.
    """
    solutions = [candidate for candidate in candidates if candidate.is_solution]
    is_right = grade_for(problem, [solution.answer for solution in solutions]) or [False] * len(solutions)
    seen: set[tuple[int, ...]] = set()

    def label(start: tuple[int, ...], is_last: bool) -> float | None:
        if start in seen:
            return None
        seen.add(start)
        pairs = zip(solutions, is_right, strict=True)
        outcomes = [right for one, right in pairs if one.token_ids[: len(start)] == start]
        is_enough = is_last or len(outcomes) >= settings.rollouts
        return _estimate(outcomes, settings) if is_enough else None

    labelled = []
    for solution in solutions:
        all_ends = ends(solution)
        labels = tuple(label(solution.token_ids[:end], end == solution.n_tokens) for end in all_ends)
        if any(one is not None for one in labels):
            labelled.append(LabelledSolution(problem.id, tuple(split_steps(solution.text, delimiters)), labels))
    return labelled


def _estimate(outcomes: Sequence[bool], settings: RolloutSettings) -> float:
    share = sum(outcomes) / len(outcomes)
    return float(share > 0) if settings.estimate == "hard" else share
