"""Find the letter in the output for a multiple-choice problem."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from tts_orch.tasks.braces import boxes
from tts_orch.tasks.statements import STATED, last_match
from tts_orch.tasks.task import Extraction

__all__ = ["LETTERS", "extract_choice", "find_choice"]

LETTERS = "ABCDEFGHIJ"


def extract_choice(text: str, letters: str = LETTERS) -> str | None:
    """Return the chosen letter, None for an abstention; see `find_choice`."""
    return find_choice(text, letters).answer


def find_choice(text: str, letters: str = LETTERS) -> Extraction:
    """Return the chosen letter.

    A letter in the last box comes first, then the last stated one, then one that begins the text or has a line of its own, and
    in the end, as a fallback, the last one in parentheses or bold.
    """
    in_box, *announced, emphasised = _patterns(letters)
    for box in reversed(list(boxes(text))):
        boxed = in_box.match(box or "")
        if boxed:
            return Extraction(boxed[1])
    for pattern in announced:
        found = last_match(pattern, text)
        if found:
            return Extraction(found[1])
    found = last_match(emphasised, text)
    return Extraction(found[1], is_fallback=True) if found else Extraction()


@functools.lru_cache
def _patterns(letters: str) -> Sequence[re.Pattern[str]]:
    letter = rf"(?:\\(?:text|textbf|mathrm|mathbf)\{{)?[(*]*([{letters}])(?![A-Za-z0-9'’])"
    sources = (
        letter,
        STATED + r"\$?(?:(?i:option|choice)\s+)?" + letter,
        rf"\A\s*{letter}(?=[ \t]*(?:[).:,*。，]|$))",
        rf"^[ \t]*{letter}[).* \t]*$",
        rf"(?:\(|\*\*){letter}[).]?[)*]",
    )
    return [re.compile(source, re.MULTILINE) for source in sources]
