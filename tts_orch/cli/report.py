"""`tts-orch report`: run folders as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tts_orch.cli.output_file import OutputFile

__all__ = ["report"]

_NAME: Final = "report.html"


@click.command()
@click.argument(
    "runs", type=click.Path(path_type=Path, exists=True, file_okay=False), nargs=-1, required=True, metavar="DIR..."
)
@click.option(
    "--out",
    type=OutputFile(),
    help=f"The page; {_NAME} in the run's folder if not given, in the working directory where there are several runs.",
)
@click.option(
    "--problems",
    "most",
    type=click.IntRange(min=0),
    default=40,
    show_default=True,
    help="Show so many problems of each run in full, those first that voting fails on, then those that are wrong.",
)
@click.option(
    "--problem", "wanted", multiple=True, metavar="ID", help="Show this problem in full instead; give it several times."
)
def report(runs: tuple[Path, ...], out: Path | None, most: int, wanted: tuple[str, ...]) -> None:
    """Write what the run folders DIR have found as one HTML page, which needs no network.

    \b
    Example: two methods side by side
      tts-orch report runs/majority runs/dvts --out methods.html

    It has accuracy against generated tokens, pass@k and maj@k with intervals, differences between runs, acceptance length
    and speed, and every problem: its candidates, or its search tree with what was kept and what was chosen.
    """  # noqa: D301
    from tts_orch.cli.reporting import write_report  # loaded late: --help must not wait for it

    write_report(runs, out or (runs[0] / _NAME if len(runs) == 1 else Path(_NAME)), most, wanted)
