"""Sentences that announce an answer."""

from __future__ import annotations

import re

__all__ = ["STATED", "last_match"]

STATED = r"(?i:answers?\s*(?:is|are|was|would be|=|:)|réponse\s+est|答案\s*(?:是|为|：|:))[\s:*]*"
"""Pattern of the words up to the answer."""


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern."""
    matches = list(pattern.finditer(text))
    return matches[-1] if matches else None
