"""What `tts-orch vocabulary show` prints."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from tts_orch.vocabulary.vocabulary_file import read_vocabulary

__all__ = ["show_vocabulary"]


def show_vocabulary(file: Path) -> None:
    """Print size and provenance of the draft vocabulary in a file.

    Raises:
        ConfigError: there is none.
    """
    read = read_vocabulary(file)
    table = Table("", "", title=str(file), show_header=False)
    table.add_row("tokens", f"{read.vocabulary.size} of {read.vocabulary.vocab_size}")
    table.add_row("never counted", str(int((read.counts == 0).sum())))
    for name, value in read.provenance.items():
        lines = value.items() if isinstance(value, dict) else ()
        text = "\n".join(f"{part}: {number}" for part, number in lines) or str(value)
        table.add_row(name.replace("_", " "), text)
    Console(highlight=False).print(table)
