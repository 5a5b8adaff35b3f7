"""`tts-orch bench`: benchmarks that a user can repeat."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click

from tts_orch.bench.plan import PARTS, BenchPlan, Part, quick, seconds_by_part
from tts_orch.cli.settings import SettingOption, given_settings, setting_option

__all__ = ["bench"]

_SECTION: Final = "Benchmark"


def _options() -> list[SettingOption]:
    return [setting_option(_SECTION, (name,), field) for name, field in BenchPlan.model_fields.items()]


@click.group()
def bench() -> None:
    """Measure what speculative decoding gives, on your own problems and machine."""


@bench.command(params=[*_options()])
@click.option("--parts", type=click.Choice(PARTS), multiple=True, help="Run these parts only [default: all].")
@click.option("--quick", "is_quick", is_flag=True, help="Make everything so small that it only shows that it works.")
@click.option("--dry-run", is_flag=True, help="Print the plan with estimates of time, and end.")
@click.pass_context
def drafting(context: click.Context, /, parts: Sequence[Part], is_quick: bool, dry_run: bool, **_options: Any) -> None:
    """Compare drafting methods: acceptance by replay of recorded trajectories, real runs, speed against plain decoding.

    \b
    Example: all parts on public data
      tts-orch bench drafting --data data --target smollm2 --out runs/drafting

    Trajectories are recorded once and used again until target, problems or seed change; each part keeps its results in the
    folder, so parts can run one by one, and for some methods or workloads only: rows of earlier runs stay. Tables and plots
    are written of all that is there. Options of several values are given several times.
    """  # noqa: D301
    from tts_orch.bench.drafting import run_parts  # loaded late: --help must not wait for it

    plan = BenchPlan(**given_settings(context))
    plan = quick(plan) if is_quick else plan
    chosen = [part for part in PARTS if not parts or part in parts]
    _print_plan(plan, chosen)
    if not dry_run:
        files = run_parts(plan, chosen, click.echo)
        click.echo(f"\n{(plan.out / 'tables.md').read_text()}")
        _print_files(files)


@bench.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
def redraw(folder: Path) -> None:
    """Write tables and plots again from the results in FOLDER, the --out of a benchmark; nothing is measured."""
    from tts_orch.bench.drafting import redraw as redraw_folder  # loaded late: --help must not wait for it

    _print_files(redraw_folder(folder))


def _print_files(files: Sequence[Path]) -> None:
    click.echo(f"written: {', '.join(map(str, files))}")


def _print_plan(plan: BenchPlan, parts: Sequence[Part]) -> None:
    from tts_orch.bench.methods import METHODS, ablations  # loads compiled code

    seconds = seconds_by_part(plan, len(METHODS), len(ablations()))
    for part in parts:
        click.echo(f"{part:12} about {seconds[part] / 60:5.1f} minutes")
    total = sum(seconds[part] for part in parts) / 60
    click.echo(f"{'in all':12} about {total:5.1f} minutes on two CPU cores, and less where outputs end early")
