"""Whether a program printed what it was to print."""

from __future__ import annotations

import math
import re
from typing import Final

__all__ = ["same_output"]

_DECIMAL: Final = re.compile(r"[+-]?\d*\.?\d+(?:[eE][+-]?\d+)?")
_TOLERANCE: Final = 1e-6


def same_output(found: str, expected: str) -> bool:
    """Compare word by word, decimals within a tolerance."""
    words, expected_words = found.split(), expected.split()
    return len(words) == len(expected_words) and all(map(_same_word, words, expected_words))


def _same_word(found: str, expected: str) -> bool:
    if found == expected:
        return True
    are_decimals = "." in expected and _DECIMAL.fullmatch(found) and _DECIMAL.fullmatch(expected)
    return bool(are_decimals) and math.isclose(float(found), float(expected), rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
