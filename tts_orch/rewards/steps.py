"""Where the steps of a solution are: the one place that cuts texts for reward models."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["cut_steps", "split_steps"]


def split_steps(text: str, delimiters: Sequence[str]) -> list[str]:
    r"""Return the steps of a text without the delimiters, and without line ends around them; blank ones do not count.

    A text that goes on after its last delimiter keeps its earlier steps as they are, so their scores stay valid.

    Args:
        text: a solution, whole or as far as it goes.
        delimiters: texts that end a step; of several that begin at one place the longest counts.

    Example:
        >>> split_steps("a\n\n\nb\n\n", ["\n\n"])
        ['a', 'b']
    """
    return [piece.strip("\n") for piece in _run_of(delimiters).split(text) if piece.strip()]


def cut_steps(text: str, delimiters: Sequence[str]) -> list[str]:
    """Return the text cut after every run of delimiters, which stay: the pieces join to the text."""
    ends = [match.end() for match in _run_of(delimiters).finditer(text)]
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]


def _run_of(delimiters: Sequence[str]) -> re.Pattern[str]:
    longest_first = sorted(map(re.escape, delimiters), key=len, reverse=True)
    return re.compile(f"(?:{'|'.join(longest_first)})+")
