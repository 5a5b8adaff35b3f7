"""Checks of trained drafters: whether their folders are complete and fit the target. Nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from tts_orch.doctor.finding import Finding, ok, stopping_at_errors
from tts_orch.drafters.folder_check import check_drafter

__all__ = ["check_drafters"]


def check_drafters(drafters: Mapping[str, Path], target: str) -> Iterator[Finding]:
    """Yield a finding on each drafter: what it is, or why it cannot be used with the target."""
    for name, folder in drafters.items():
        yield from stopping_at_errors(f"drafter {name}", partial(_check, name, folder, target))


def _check(name: str, folder: Path, target: str) -> Iterator[Finding]:
    yield ok(f"drafter {name}", check_drafter(name, folder, target))
