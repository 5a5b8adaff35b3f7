"""What a kind of task is: how problems are asked, and how answers are found, compared and judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tts_orch.records import Problem

__all__ = ["Extraction", "Task"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What was found in an output.

    Attributes:
        answer: the answer as it stands there, None for an abstention.
        is_fallback: whether nothing announces it, and it is only the last thing that may be one.
    """

    answer: str | None = None
    is_fallback: bool = False


class Task(Protocol):
    """A kind of task. Answers are texts, as `extract` returns them."""

    def question(self, problem: Problem, text: str) -> str:
        """Return what the problem asks: its text, with what else of the problem belongs to it."""
        ...

    def instruction(self, problem: Problem) -> str:
        """Return a sentence that says in which form to answer."""
        ...

    def needs_instruction(self, problem: Problem, is_chat: bool) -> bool:
        """Return whether the form of the answer cannot be known without the instruction.

        Args:
            problem: that is asked.
            is_chat: whether a chat model is asked, which goes on from nothing by itself.
        """
        ...

    def extract(self, problem: Problem, text: str) -> Extraction:
        """Return the answer that an output gives."""
        ...

    def classes(self, answers: Sequence[str | None]) -> list[int | None]:
        """Partition answers by their meaning: numbers in order of first appearance, None for an abstention.

        A permutation of the answers gives the same partition.
        """
        ...

    def can_grade(self, problem: Problem) -> bool:
        """Return whether answers to the problem can be judged."""
        ...

    def is_correct(self, problem: Problem, answer: str) -> bool:
        """Return whether an answer is right; may take long."""
        ...
