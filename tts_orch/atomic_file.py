"""Whole files that are either the old or the new one, whenever the process dies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tts_orch.errors import RunError

__all__ = ["replacing", "write_atomically"]


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace a file's content; texts are written as UTF-8.

    Raises:
        RunError: the file cannot be written; the old content stays.
    """
    with replacing(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Write a file that takes the place of an old one when the block ends without an error.

    Raises:
        RunError: the file cannot be written; the old content stays.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise RunError(f"{path}: {error.strerror}; mend it and run the same command again") from error
