"""Read files of JSON lines that somebody wrote: an object a line, plain or gzip, one clear line for every mistake."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

from tts_orch.errors import ProblemError

__all__ = ["read_objects"]

_GZIP_MAGIC: Final = b"\x1f\x8b"
_T = TypeVar("_T")


def read_objects(path: Path, parse: Callable[[Mapping[str, Any]], _T]) -> list[_T]:
    """Read what every line has, blank ones left out.

    Args:
        path: the file.
        parse: makes a value of an object; a ValueError or ProblemError says what is wrong with it and what to do.

    Raises:
        ProblemError: the file cannot be read, or a line is malformed: `file:line: what; what to do`.
    """
    values = []
    for number, line in enumerate(_content(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            values.append(parse(_object(line)))
        except (ValueError, ProblemError) as error:
            raise ProblemError(f"{path}:{number}: {error}") from None
    return values


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "damaged gzip data"
        raise ProblemError(f"{path}: {reason}; give a readable file of JSON lines, plain or .gz") from None


def _object(line: bytes) -> Mapping[str, Any]:
    """Parse one line; a ValueError says what is wrong and what to do."""
    try:
        fields = json.loads(line.decode("utf-8-sig"))
        json.dumps(fields, ensure_ascii=False).encode()  # lone surrogates have no tokens
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON ({error.msg}, column {error.colno}); give one JSON object a line") from None
    except UnicodeError:
        raise ValueError("not valid Unicode; save the file as UTF-8") from None
    except RecursionError:
        raise ValueError("nested too deeply; give one flat JSON object a line") from None
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object; give one a line")
    return fields
