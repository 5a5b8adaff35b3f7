"""`tts-orch run --dry-run`: find every mistake that can be found without a model, and say how much there is to decode."""

from __future__ import annotations

import click

from tts_orch.config import RunConfig
from tts_orch.journal import count_finished
from tts_orch.run_folder import check_folder
from tts_orch.tasks.problems import read_problems

__all__ = ["check_run"]


def check_run(config: RunConfig) -> None:
    """Print the resolved settings as a YAML file, its last line a comment on the work; the run folder is not touched.

    Raises:
        OrchestratorError: the problems or the run folder would keep the run from beginning.
    """
    problems = read_problems(config.problems)[: config.limit]
    check_folder(config, problems)
    n, finished = config.method.n, count_finished(config.out)
    n_missing = sum(max(n - finished[problem.id], 0) for problem in problems)
    click.echo(config.to_yaml(), nl=False)
    click.echo(f"# {len(problems)} problems x {n} candidates, of them {n_missing} to decode")
