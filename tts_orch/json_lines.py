"""Append-only files of JSON lines that survive a killed writer.

A line leaves in one write and counts only with its newline, so the worst a killed process leaves behind is an unfinished
last line: readers skip it, the next writer cuts it off. A bad line anywhere else is damage from outside and an error.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from tts_orch.errors import RunError, RunFolderError

__all__ = ["JsonLine", "JsonLinesFile", "JsonObject", "json_line", "read_json_lines"]

JsonObject: TypeAlias = dict[str, Any]

logger = logging.getLogger(__name__)


class JsonLine(NamedTuple):
    """One complete line: its number from 1, the byte it begins at, and what it holds."""

    number: int
    offset: int
    values: JsonObject


def json_line(values: Mapping[str, Any]) -> str:
    """Return one line, newline included; pure ASCII."""
    return json.dumps(values, separators=(",", ":")) + "\n"


def read_json_lines(path: Path) -> Iterator[JsonLine]:
    """Yield the complete lines of a file in order; a file that does not exist has none.

    Raises:
        RunFolderError: a complete line is not a JSON object.
    """
    if not path.exists():
        return
    offset = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield JsonLine(number, offset, _parse(path, number, line))
            offset += len(line)


def _parse(path: Path, number: int, line: bytes) -> JsonObject:
    try:
        values = json.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise RunFolderError(f"{path}:{number}: not a JSON object; delete the line to have its work done again")
    return values


class JsonLinesFile:
    """A file of JSON lines open for appending; every line is handed to the operating system before `append` returns.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer = path.open("ab", buffering=0)
        self._reader = path.open("rb")
        self._cut_unfinished_line()

    def _cut_unfinished_line(self) -> None:
        complete = sum(len(line) for line in self._reader if line.endswith(b"\n"))
        unfinished = self._writer.seek(0, os.SEEK_END) - complete
        if unfinished:
            logger.warning("%s: dropped an unfinished last line of %d bytes", self.path, unfinished)
            self._writer.truncate(complete)

    def append(self, values: Mapping[str, Any]) -> int:
        """Write one line and return the byte it begins at.

        Raises:
            RunError: the disk is full or gone; what was written before stays readable.
        """
        line = json_line(values).encode()
        try:
            offset = self._writer.seek(0, os.SEEK_END)
            if self._writer.write(line) < len(line):
                self._writer.truncate(offset)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise RunError(
                f"{self.path}: {error.strerror}; mend it and run the same command again to resume"
            ) from error
        return offset

    def read(self, offset: int) -> JsonObject:
        """Return the line that begins at a byte."""
        self._reader.seek(offset)
        values: JsonObject = json.loads(self._reader.readline())
        return values

    def sync(self) -> None:
        """Force what was written to the disk."""
        os.fsync(self._writer.fileno())

    def close(self) -> None:
        """Force what was written to the disk and close the file."""
        self.sync()
        self._writer.close()
        self._reader.close()
