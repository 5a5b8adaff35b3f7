"""Files that a command writes when its work is done: whether they can be written is known before it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

__all__ = ["OutputFile"]


class OutputFile(click.Path):
    """Type of an option that names a file to write; its folder must be there."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Return the path; a usage error where nothing can be written."""
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"{path}: there is no folder {path.parent}; make it, or name another file", param, ctx)
        if not os.access(path.parent, os.W_OK):
            self.fail(f"{path}: the folder {path.parent} cannot be written; name another file", param, ctx)
        return path
