"""Step labels from the results of a reference solution's steps, where problems have them.

They say which step is the first wrong one. Rollouts cannot where the target rarely gets to the right answer at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, chain, repeat
from operator import and_

from tts_orch.records import Candidate, Problem
from tts_orch.rewards.steps import split_steps
from tts_orch.tasks.equivalence import answers_equal
from tts_orch.tasks.extraction import extract_answer
from tts_orch.training.labelled_solutions import LabelledSolution

__all__ = ["label_by_reference"]


def label_by_reference(
    problem: Problem, candidates: Sequence[Candidate], delimiters: Sequence[str]
) -> list[LabelledSolution]:
    """Label the steps of all sampled solutions, of equal ones once.

    A step is right if what it comes to is the result of the reference's step in its place (of the last one, where there are
    more steps than that), and all steps before it are right.

    Args:
        problem: has `step_answers`.
        candidates: solutions, and rollouts, which are solutions too.
        delimiters: texts that end a step.
    """
    texts = dict.fromkeys(candidate.text for candidate in candidates if candidate.is_solution)
    shown = (tuple(split_steps(text, delimiters)) for text in texts)
    return [LabelledSolution(problem.id, steps, _labels(steps, problem.step_answers or ())) for steps in shown if steps]


def _labels(steps: Sequence[str], results: Sequence[str]) -> tuple[float, ...]:
    expected = chain(results, repeat(results[-1]))
    is_right = (_comes_to(step, result) for step, result in zip(steps, expected, strict=False))
    return tuple(map(float, accumulate(is_right, and_)))


def _comes_to(step: str, result: str) -> bool:
    found = extract_answer(step)
    return found is not None and answers_equal(found, result)
