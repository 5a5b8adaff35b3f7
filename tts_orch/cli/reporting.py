"""What `tts-orch report` does: read, draw, write, and say what is in the page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import click

from tts_orch.atomic_file import write_atomically
from tts_orch.errors import ConfigError
from tts_orch.reporting.page import report_page
from tts_orch.reporting.problems_section import choose_shown
from tts_orch.reporting.reported_run import ReportedRun, read_runs

__all__ = ["write_report"]


def write_report(folders: Sequence[Path], out: Path, most: int, wanted: Collection[str]) -> None:
    """Write the report of run folders and print where it is and what it shows.

    Args:
        folders: of the runs.
        out: the page.
        most: problems of each run that are shown in full.
        wanted: ids of problems to show in full instead, if there are any.

    Raises:
        UserError: a folder cannot be reported on, or a problem is in none of them.
        RunError: the page cannot be written.
    """
    runs = read_runs(folders)
    _check_known(runs, wanted)
    shown = [choose_shown(run, most, wanted) for run in runs]
    page = report_page(runs, shown).encode()
    write_atomically(out, page)
    counts = ", ".join(f"{len(ids)} of {len(run.results)}" for ids, run in zip(shown, runs, strict=True))
    click.echo(f"{out}: {len(page) / 1e6:.1f} MB, problems shown in full: {counts}")


def _check_known(runs: Sequence[ReportedRun], wanted: Collection[str]) -> None:
    known = {result.problem_id for run in runs for result in run.results}
    for problem_id in wanted:
        if problem_id not in known:
            raise ConfigError(f"--problem: no run has finished {problem_id!r}; give ids of finished problems")
