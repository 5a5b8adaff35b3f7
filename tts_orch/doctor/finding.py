"""What a check found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from tts_orch.errors import OrchestratorError

__all__ = ["Finding", "failure", "ok", "stopping_at_errors", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `tts-orch doctor`.

    Attributes:
        state: `failure` keeps runs from working; `warning` does not.
        check: what was looked at.
        text: what was seen, and what to do unless all is well.
    """

    state: Literal["ok", "warning", "failure"]
    check: str
    text: str


def ok(check: str, text: str) -> Finding:
    """Return that all is well."""
    return Finding("ok", check, text)


def warning(check: str, text: str) -> Finding:
    """Return that runs work, but not as they could."""
    return Finding("warning", check, text)


def failure(check: str, text: str) -> Finding:
    """Return that runs will fail."""
    return Finding("failure", check, text)


def stopping_at_errors(check: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield findings; an error of ours, which says what to do already, is the last of them."""
    try:
        yield from look()
    except OrchestratorError as error:
        yield failure(check, str(error).removeprefix(f"{check}: "))
