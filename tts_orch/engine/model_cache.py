"""What is expensive to make and kept on disk: converted models and the digests of big files.

Everything appears under its final name by a rename, so whatever is there is complete, also after a crash and with several
processes starting together.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from filelock import FileLock

from tts_orch.errors import TargetError

__all__ = ["build_once", "cache_folder", "file_digest"]

_CHUNK_BYTES: Final = 1 << 20

logger = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return `$TTS_ORCH_CACHE`, else `~/.cache/tts_orch`."""
    return Path(os.environ.get("TTS_ORCH_CACHE") or "~/.cache/tts_orch").expanduser()


def build_once(name: str, what: str, build: Callable[[Path], None]) -> Path:
    """Return a cached folder; the first process that asks builds it, the others wait.

    Args:
        name: of the folder in the cache.
        what: is built, for the log.
        build: fills the folder it is given, which is empty; its parent may hold scratch files, which are removed.

    Raises:
        TargetError: the cache cannot be written, or `build` said so.
    """
    folder = cache_folder() / name
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():
                logger.info("preparing %s in %s: about half a minute, the first time only", what, folder)
                _build(folder, build)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TargetError(f"{folder}: {reason}; set TTS_ORCH_CACHE to a writable folder with enough room") from error
    return folder


def file_digest(file: Path) -> str:
    """Return a file's SHA-256 in hexadecimal, remembered by place, size and time of change.

    A big model takes many seconds to read; a file that was rewritten with the same size within the clock's tick would be
    mistaken for the old one.
    """
    status = file.stat()
    place = f"{file.resolve()} {status.st_size} {status.st_mtime_ns}"
    remembered = cache_folder() / "digests" / hashlib.sha256(place.encode()).hexdigest()
    try:
        return remembered.read_text()
    except OSError:
        digest = _sha256(file)
    _remember(remembered, digest)
    return digest


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".building-") as workplace:
        unfinished = Path(workplace) / folder.name
        unfinished.mkdir()
        build(unfinished)
        unfinished.rename(folder)


def _remember(file: Path, text: str) -> None:
    """Write a small file; a cache that cannot be written only costs time."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as unfinished:
            unfinished.write(text)
        Path(unfinished.name).rename(file)
    except OSError as error:
        logger.debug("%s: not remembered: %s", file, error)


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()
