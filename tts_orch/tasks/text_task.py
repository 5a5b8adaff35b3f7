"""Problems that are answered in free text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tts_orch.records import Problem
from tts_orch.tasks.classes import equal_classes
from tts_orch.tasks.task import Extraction

__all__ = ["TextTask"]

_MOST_WORDS: Final = 10  # a longer reference is an example of an answer, not the answer


class TextTask:
    """A `Task`: the whole output is the answer, and answers are equal that have the same words, whatever their case."""

    def question(self, problem: Problem, text: str) -> str:
        """Return the text as it is."""
        return text

    def instruction(self, problem: Problem) -> str:
        """Ask for the answer alone, so that equal answers are equal texts."""
        return "Answer with the answer alone, without an explanation."

    def needs_instruction(self, problem: Problem, is_chat: bool) -> bool:
        """Return False: any text is an answer."""
        return False

    def extract(self, problem: Problem, text: str) -> Extraction:
        """Return the output without the space around it."""
        return Extraction(text.strip() or None)

    def classes(self, answers: Sequence[str | None]) -> list[int | None]:
        """Partition by equal words."""
        return equal_classes([answer and _words(answer) for answer in answers])

    def can_grade(self, problem: Problem) -> bool:
        """Return whether there is a reference answer that an answer may be equal to."""
        return problem.answer is not None and len(problem.answer.split()) <= _MOST_WORDS

    def is_correct(self, problem: Problem, answer: str) -> bool:
        """Return whether the answer has the reference's words."""
        return problem.answer is not None and _words(answer) == _words(problem.answer)


def _words(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")
