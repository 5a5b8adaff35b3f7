"""Exceptions as lines for people."""

from __future__ import annotations

import pytest

from tts_orch.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("\n  no such file\nand more"), "no such file"),
        (RuntimeError(), "RuntimeError"),
        (ValueError(" \n"), "ValueError"),
    ],
)
def test_an_exception_becomes_one_line_that_is_never_empty(error: Exception, line: str) -> None:
    assert first_line(error) == line
