"""Problems whose answer is a number or an expression."""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.records import Problem
from tts_orch.tasks.classes import answer_classes
from tts_orch.tasks.equivalence import answers_equal
from tts_orch.tasks.extraction import find_answer
from tts_orch.tasks.task import Extraction

__all__ = ["MathTask"]


class MathTask:
    r"""A `Task`: the answer stands in a `\boxed{}`, behind `####`, or is announced; else it is the last value, as a fallback."""

    def question(self, problem: Problem, text: str) -> str:
        """Return the text as it is."""
        return text

    def instruction(self, problem: Problem) -> str:
        """Ask for a box."""
        return r"Reason step by step, and put your final answer within \boxed{}."

    def needs_instruction(self, problem: Problem, is_chat: bool) -> bool:
        """Return False: answers are found without a box too."""
        return False

    def extract(self, problem: Problem, text: str) -> Extraction:
        """Return the answer; see `extraction`."""
        return find_answer(text)

    def classes(self, answers: Sequence[str | None]) -> list[int | None]:
        """Partition by mathematical equivalence."""
        return answer_classes(answers)

    def can_grade(self, problem: Problem) -> bool:
        """Return whether there is a reference answer."""
        return problem.answer is not None

    def is_correct(self, problem: Problem, answer: str) -> bool:
        """Return whether the answer is equivalent to the reference."""
        return problem.answer is not None and answers_equal(answer, problem.answer)
