"""Which task a problem is."""

from __future__ import annotations

from typing import Final

from tts_orch.errors import ProblemError
from tts_orch.records import Problem
from tts_orch.task_config import TaskName
from tts_orch.tasks.choice_task import ChoiceTask
from tts_orch.tasks.code.problem_tests import code_tests
from tts_orch.tasks.code.task import CodeTask
from tts_orch.tasks.math_task import MathTask
from tts_orch.tasks.task import Task
from tts_orch.tasks.text_task import TextTask

__all__ = ["task_of"]

_MATH, _CHOICE, _CODE, _TEXT = MathTask(), ChoiceTask(), CodeTask(), TextTask()
_TASKS: Final[dict[TaskName, Task]] = {"math": _MATH, "choice": _CHOICE, "code": _CODE, "text": _TEXT}
_TEXT_DOMAINS: Final = {"chat", "code", "ner", "qa", "rag", "summarization", "tool", "translation"}


def task_of(problem: Problem, name: TaskName = "auto") -> Task:
    """Return the task of a problem.

    Args:
        problem: that is asked.
        name: as the run says. `auto` sees a choice in `choices`, code in `tests`, free text in domains that have no short
            answer (code without tests among them), and math in everything else.

    Raises:
        ProblemError: the run says code, and the problem has no tests.
    """
    if name == "code" and code_tests(problem) is None:
        raise ProblemError(f"problem {problem.id!r}: task code needs `tests`; add them, or choose another task")
    if name != "auto":
        return _TASKS[name]
    if problem.choices:
        return _CHOICE
    if code_tests(problem) is not None:
        return _CODE
    return _TEXT if problem.domain in _TEXT_DOMAINS else _MATH
