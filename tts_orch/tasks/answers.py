"""Answers to a problem, in the way of its task: found, put into classes, graded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tts_orch.records import Problem
from tts_orch.task_config import TaskName
from tts_orch.tasks.registry import task_of
from tts_orch.tasks.task import Extraction
from tts_orch.tasks.thinking import NO_THINKING, Thinking

__all__ = ["classes_for", "extract_for", "grade_for"]


def extract_for(
    problem: Problem, text: str, *, task: TaskName = "auto", thinking: Thinking = NO_THINKING
) -> Extraction:
    """Return the answer that an output gives.

    Args:
        problem: that was asked.
        text: the output from its beginning on.
        task: as the run says.
        thinking: how the model marks its thinking off; only what follows it is looked at.
    """
    return task_of(problem, task).extract(problem, thinking.answer_part(text))


def classes_for(problem: Problem, answers: Sequence[str | None], *, task: TaskName = "auto") -> list[int | None]:
    """Partition answers by their meaning: numbers in order of first appearance, None for an abstention."""
    return task_of(problem, task).classes(answers)


def grade_for(problem: Problem, answers: Sequence[str | None], *, task: TaskName = "auto") -> list[bool] | None:
    """Return whether each answer is right, an abstention never; None where the problem does not say what is right.

    Equal answers are judged once, different ones at the same time.
    """
    judge = task_of(problem, task)
    if not judge.can_grade(problem):
        return None
    different = list(dict.fromkeys(answer for answer in answers if answer is not None))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        verdicts = dict(
            zip(different, pool.map(lambda answer: judge.is_correct(problem, answer), different), strict=True)
        )
    return [answer is not None and verdicts[answer] for answer in answers]
