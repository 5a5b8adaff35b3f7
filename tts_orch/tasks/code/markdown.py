"""Code blocks in Markdown."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

__all__ = ["CodeBlock", "code_blocks"]

_FENCE: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<fence>`{3,}|~{3,})[ \t]*(?P<language>[^\s`]*)[^\n`]*\n"
    r"(?P<code>.*?)(?:^[ \t]*(?P=fence)[`~]*[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block.

    Attributes:
        language: as its fence says, in lower case; empty where it does not.
        code: its lines.
    """

    language: str
    code: str


def code_blocks(text: str) -> list[CodeBlock]:
    """Return the fenced blocks in order; one that is never closed reaches to the end."""
    return [
        CodeBlock(block["language"].lower(), textwrap.dedent(block["code"]) if block["indent"] else block["code"])
        for block in _FENCE.finditer(text)
    ]
