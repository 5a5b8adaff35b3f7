"""What `tts-orch drafter average` does: several heads become one, in a folder of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from tts_orch.cli.head_folder import write_head
from tts_orch.drafters.checkpoint import is_own_head, read_head
from tts_orch.errors import ConfigError
from tts_orch.training.drafters.averaging import averaged_head

__all__ = ["average_heads"]


def average_heads(heads: Sequence[Path], out: Path) -> None:
    """Write the mean of heads into a folder; what was trained is never written over, an earlier average is.

    Args:
        heads: folders of heads that were trained alike.
        out: folder to write.

    Raises:
        ConfigError: fewer than two heads, heads that do not go together, or a folder of another drafter.
        RunFolderError: the folder cannot be written.
    """
    places = {head.resolve() for head in heads}
    if len(places) < 2:
        raise ConfigError(f"heads: {heads[0]} alone has no average; give the folders of two heads or more")
    if out.resolve() in places:
        raise ConfigError(
            f"--out: {out} is the folder of one of the heads; give another one, so that this head is kept"
        )
    if (out / "config.json").exists() and not _is_average(out):
        raise ConfigError(
            f"--out: {out} has a drafter in it that is no average; give another folder, so that it is kept"
        )
    write_head(out, averaged_head(heads))
    click.echo(f"written: {out}, the mean of {len(heads)} heads")


def _is_average(folder: Path) -> bool:
    return is_own_head(folder) and "average_of" in read_head(folder).config.trained_by
