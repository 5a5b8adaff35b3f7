"""Judge an output against a reference answer."""

from __future__ import annotations

import re

from tts_orch.tasks.choices import LETTERS, extract_choice
from tts_orch.tasks.equivalence import answers_equal
from tts_orch.tasks.extraction import extract_answer

__all__ = ["answers_equal", "extract_answer", "grade"]

_CHOICE = re.compile(rf"\(?([{LETTERS}])\)?")


def grade(output: str, gold: str) -> bool:
    """Return whether a model's output gives the reference answer; a reference of one letter A to J is a choice."""
    choice = _CHOICE.fullmatch(gold.strip())
    if choice:
        return extract_choice(output) == choice[1]
    answer = extract_answer(output)
    return answer is not None and answers_equal(answer, gold)
