"""Whole files that are either the old or the new one, whenever the process dies."""

from __future__ import annotations

import os
from pathlib import Path

from tts_orch.errors import RunError

__all__ = ["write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content.

    Raises:
        RunError: the file cannot be written; the old content stays.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; mend it and run the same command again to resume") from error
