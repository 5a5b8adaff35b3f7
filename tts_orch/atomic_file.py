"""Whole files that are either the old or the new one, whenever the process dies."""

from __future__ import annotations

import os
from pathlib import Path

from tts_orch.errors import RunError

__all__ = ["write_atomically"]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file's content; texts are written as UTF-8.

    Raises:
        RunError: the file cannot be written; the old content stays.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; mend it and run the same command again") from error
