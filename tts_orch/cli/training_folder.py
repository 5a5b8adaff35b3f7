"""The folder of a training, which one process at a time writes, and in which a stopped training goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tts_orch.errors import UserError
from tts_orch.folder_lock import FolderLock
from tts_orch.run_folder import unusable

__all__ = ["training_folder"]


@contextmanager
def training_folder(out: Path, *caches: Path) -> Iterator[None]:
    """Hold a training's folder; it and its caches are made where they are missing, and a mistake leaves no empty ones.

    Args:
        out: the folder.
        caches: one of them is in it.

    Raises:
        RunFolderError: they cannot be made or written, or another process is at work in the folder.
        KeyboardInterrupt: the training was interrupted; its message says how to go on.
    """
    missing = [folder for folder in dict.fromkeys((*caches, out)) if not folder.exists()]
    try:
        for cache in caches:
            cache.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(out)
    except OSError as error:
        raise unusable(out, error) from None
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"interrupted; run the same command again to go on in {out}") from None
    except UserError:
        _remove_empty(missing)
        raise
    finally:
        lock.release()


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove folders that have nothing in them but the lock; caches come before the folder that they are in."""
    for folder in folders:
        if {file.name for file in folder.iterdir()} <= {"lock"}:
            shutil.rmtree(folder)
