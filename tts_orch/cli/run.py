"""`tts-orch run`: from the command line and a YAML file to the settings of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from tts_orch.cli.ray_job import check_out
from tts_orch.cli.reward_choice import with_useful_reward
from tts_orch.cli.settings import SectionedCommand, given_settings, merged, run_options
from tts_orch.cli.step_choice import check_steps
from tts_orch.cli.tree_choice import check_tree
from tts_orch.config import RunConfig, load_config
from tts_orch.errors import ConfigError

__all__ = ["run"]

_RUNS: Final = Path("runs")


@click.command(cls=SectionedCommand, params=[*run_options()])
@click.argument("problems", type=click.Path(path_type=Path), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="YAML file of settings; options win over it.")
@click.option(
    "--dry-run", is_flag=True, help="Check all but the weights, print the settings and the work ahead, and end."
)
@click.option(
    "--tokens-per-s",
    type=click.FloatRange(min=0, min_open=True),
    help="Rate by which --dry-run reckons the time; the one measured in the run folder if not given.",
)
@click.pass_context
def run(
    context: click.Context,
    /,
    problems: Path | None,
    config: Path | None,
    dry_run: bool,
    tokens_per_s: float | None,
    **_options: Any,
) -> None:
    """Search for the answers to PROBLEMS and keep everything in a run folder.

    \b
    Example: 16 samples a problem, the most frequent answer wins
      tts-orch run problems.jsonl --target smollm2 --method majority_vote -n 16 --out runs/first

    PROBLEMS has a JSON object a line: id and prompt (or chat messages), optional answer, domain, choices, tests; .gz is read too.
    Stopped by Ctrl-C or killed, the same command goes on where it was; a larger -n or --limit only adds to what is there.
    The seed fixes every token: drafts, batches, workers and restarts change the speed alone. (With --verification rejection
    the law of the tokens is fixed, not the tokens: what a stopped run had not finished is drawn anew.)

    Each option is also a setting of the YAML file of --config; the run folder's config.yaml is such a file.
    As the entry point of `ray job submit` it needs an absolute --out; docs/cluster.md shows the rest.
    """  # noqa: D301
    from tts_orch.cli.dry_run import check_run  # loaded late: --help must not wait for them
    from tts_orch.cli.solving import solve
    from tts_orch.policies.search import find_policy

    settings = merged(load_config(config) if config else {}, given_settings(context))
    if problems:
        settings["problems"] = problems
    resolved = with_useful_reward(_resolved(settings))
    check_out(resolved.out)
    check_tree(resolved.engine)
    check_steps(resolved)
    find_policy(resolved.method)  # one of another package may be missing
    if dry_run:
        check_run(resolved, tokens_per_s)
    elif tokens_per_s:
        raise ConfigError("--tokens-per-s: only --dry-run reads it; add that, or leave the rate out")
    else:
        solve(resolved)


def _resolved(settings: dict[str, Any]) -> RunConfig:
    """Check the settings, and name the run folder after problems and method where it has no name."""
    config = RunConfig(**{"engine": {}, "out": _RUNS, **settings})
    if "out" in settings:
        return config
    name = f"{config.problems.name.split('.')[0]}-{config.method.name}"
    return config.model_copy(update={"out": _RUNS / name})
