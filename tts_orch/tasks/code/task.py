"""Problems whose answer is a program that passes tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tts_orch.records import Problem
from tts_orch.tasks.classes import equal_classes
from tts_orch.tasks.code.extraction import extract_program
from tts_orch.tasks.code.parsing import normal_form
from tts_orch.tasks.code.problem_tests import FunctionTests, code_tests
from tts_orch.tasks.code.running import run_tests
from tts_orch.tasks.task import Extraction

__all__ = ["CodeTask"]

_FORM: Final = "Answer with one Python code block"


class CodeTask:
    """A `Task`: the answer is a program that can be run by itself.

    Answers are equal that are the same code, whatever their comments, docstrings and layout. Classes by what programs do
    would need inputs; those of the tests are what an answer is graded by, and no vote may see them.
    """

    def question(self, problem: Problem, text: str) -> str:
        """Return the text as it is."""
        return text

    def instruction(self, problem: Problem) -> str:
        """Ask for a code block, and say what the tests call or that they write to standard input."""
        tests = code_tests(problem)
        if not isinstance(tests, FunctionTests):
            return f"{_FORM}: a program that reads standard input and writes to standard output."
        if tests.entry_point:
            return f"{_FORM} that has the whole function {tests.entry_point}."
        return f"{_FORM} that passes these tests:\n{tests.source.strip()}"

    def needs_instruction(self, problem: Problem, is_chat: bool) -> bool:
        """Return whether the prompt is anything but a function's beginning that a model goes on with by itself."""
        tests = code_tests(problem)
        return is_chat or not isinstance(tests, FunctionTests) or not tests.entry_point

    def extract(self, problem: Problem, text: str) -> Extraction:
        """Return the program."""
        return Extraction(extract_program(problem, text))

    def classes(self, answers: Sequence[str | None]) -> list[int | None]:
        """Partition by equal code."""
        return equal_classes([answer and normal_form(answer) for answer in answers])

    def can_grade(self, problem: Problem) -> bool:
        """Return whether the problem has tests."""
        return code_tests(problem) is not None

    def is_correct(self, problem: Problem, answer: str) -> bool:
        """Return whether the program passes all tests."""
        tests = code_tests(problem)
        return tests is not None and run_tests(tests, answer).passed
