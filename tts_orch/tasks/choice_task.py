"""Multiple-choice problems."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from tts_orch.records import Problem
from tts_orch.tasks.choices import LETTERS, find_choice
from tts_orch.tasks.classes import equal_classes
from tts_orch.tasks.task import Extraction

__all__ = ["ChoiceTask", "with_choices"]


class ChoiceTask:
    """A `Task`: the answer is a letter."""

    def question(self, problem: Problem, text: str) -> str:
        """Return the text with the choices behind it; see `with_choices`."""
        return with_choices(text, problem.choices)

    def instruction(self, problem: Problem) -> str:
        """Ask for a letter."""
        return 'Reason step by step, and end with "The answer is X.", where X is the letter of the right choice.'

    def needs_instruction(self, problem: Problem, is_chat: bool) -> bool:
        """Return False: lettered choices ask for a letter."""
        return False

    def extract(self, problem: Problem, text: str) -> Extraction:
        """Return a letter of the problem's; see `choices`."""
        return find_choice(text, LETTERS[: len(problem.choices)] if problem.choices else LETTERS)

    def classes(self, answers: Sequence[str | None]) -> list[int | None]:
        """Partition by letter."""
        return equal_classes(answers)

    def can_grade(self, problem: Problem) -> bool:
        """Return whether there is a reference answer."""
        return problem.answer is not None

    def is_correct(self, problem: Problem, answer: str) -> bool:
        """Return whether the letter is the reference's, which may stand in parentheses."""
        return problem.answer is not None and answer == problem.answer.strip().strip("().").upper()


def with_choices(text: str, choices: Sequence[str] | None) -> str:
    """Return a problem's text with its choices as lettered lines behind it, unless it shows them already."""
    lettered = list(zip(ascii_uppercase, choices or (), strict=False))
    if all(_is_shown(letter, choice, text) for letter, choice in lettered):
        return text
    return "\n".join([text.rstrip(), *(f"{letter}. {choice}" for letter, choice in lettered)])


def _is_shown(letter: str, choice: str, text: str) -> bool:
    """Whether a choice stands behind its letter; that its words are somewhere in the question does not tell which letter it has."""
    return re.search(rf"\b{letter}\W{{1,4}}{re.escape(choice)}", text) is not None
