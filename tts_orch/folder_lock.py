"""An exclusive lock on a folder that no killed process can leave behind."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from tts_orch.errors import RunFolderError

__all__ = ["FolderLock"]


class FolderLock:
    """Holds `lock` in an existing folder until `release`, or until its process ends, however it ends.

    The operating system holds the lock, not the file's existence; the file only says who has it.

    Raises:
        RunFolderError: another process holds it.
        OSError: the file cannot be opened.
    """

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "lock").open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise RunFolderError(
                f"{folder}: in use by process {holder}; wait until it ends, or give another --out"
            ) from None
        self._file.truncate(0)
        self._file.write(str(os.getpid()))
        self._file.flush()

    def release(self) -> None:
        """Let the next process in."""
        self._file.close()
