"""Balanced braces and boxes in LaTeX text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["boxes", "matching_braces"]

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?=\{)")


def matching_braces(text: str) -> Mapping[int, int]:
    r"""Return the position of the closing brace by that of the opening one; escaped braces (`\{`, `\}`) do not count."""
    closing: dict[int, int] = {}
    unclosed: list[int] = []
    for brace in _BRACE.finditer(text):
        if brace[0] == "{":
            unclosed.append(brace.start())
        elif brace[0] == "}" and unclosed:
            closing[unclosed.pop()] = brace.start()
    return closing


def boxes(text: str) -> Iterator[str | None]:
    """Yield the content of every box in order, None for one that is empty or never closed."""
    closing = matching_braces(text)
    for box in _BOX.finditer(text):
        end = closing.get(box.end())
        yield None if end is None else text[box.end() + 1 : end].strip() or None
