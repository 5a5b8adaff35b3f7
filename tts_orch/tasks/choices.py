"""Find the letter in the output for a multiple-choice problem."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from tts_orch.tasks.braces import boxes
from tts_orch.tasks.statements import STATED, last_match

__all__ = ["LETTERS", "extract_choice"]

LETTERS = "ABCDEFGHIJ"


def extract_choice(text: str, letters: str = LETTERS) -> str | None:
    """Return the chosen letter, None for an abstention.

    A letter in the last box comes first, then the last stated one, then one that begins the text or has a line of its own, and
    in the end the last one in parentheses or bold.
    """
    in_box, *elsewhere = _patterns(letters)
    for box in reversed(list(boxes(text))):
        boxed = in_box.match(box or "")
        if boxed:
            return boxed[1]
    found = (last_match(pattern, text) for pattern in elsewhere)
    return next((match[1] for match in found if match), None)


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
