"""`tts-orch run --dry-run`: find every mistake that can be found without a model, and say how much there is to decode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta

import click

from tts_orch.cli.workload import workload
from tts_orch.config import DVTS, EngineConfig, RunConfig
from tts_orch.journal import count_finished
from tts_orch.records import Problem
from tts_orch.reward_config import WITHOUT_MODEL
from tts_orch.run_folder import check_folder, read_results, read_summary, results_of
from tts_orch.tasks.problems import read_problems

__all__ = ["check_run"]


def check_run(config: RunConfig, tokens_per_s: float | None = None) -> None:
    """Print the resolved settings as a YAML file that ends with comments on the work; the run folder is not touched.

    Args:
        config: settings of the run.
        tokens_per_s: rate of decoding, the one that was measured in the run folder if not given.

    Raises:
        OrchestratorError: the problems, the run folder or the trained drafters would keep the run from beginning.
    """
    problems = read_problems(config.problems)[: config.limit]
    check_folder(config, problems)
    drafters = _drafters(config.engine)
    click.echo(config.to_yaml(), nl=False)
    for line in (*drafters, *_work(config, problems, tokens_per_s)):
        click.echo(f"# {line}")


def _drafters(config: EngineConfig) -> list[str]:
    if not config.drafters:
        return []
    from tts_orch.drafters.folder_check import check_drafter  # loads torch

    return [f"drafter {name}: {check_drafter(name, folder, config.target)}" for name, folder in config.drafters.items()]


def _work(config: RunConfig, problems: Sequence[Problem], tokens_per_s: float | None) -> Iterator[str]:
    method, n_missing = config.method, _n_missing(config, problems)
    yield f"{len(problems)} problems x {method.n} candidates, of them {n_missing} to decode"
    if isinstance(method, DVTS):
        yield f"{method.n // method.beam_width} subtrees a problem"
    work = workload(method, config.law.max_new_tokens)
    if work is None:
        return
    generated_tokens = n_missing * work.generated_tokens
    yield f"at most {n_missing * work.calls} sampling calls and {generated_tokens} generated tokens"
    if config.reward is not None and config.reward.kind not in WITHOUT_MODEL:
        yield f"at most {generated_tokens} reward tokens, prompts not counted"
    rate = tokens_per_s or read_summary(config.out).get("tokens_per_s")
    if not rate:
        yield "time not known before a first run; give --tokens-per-s"
        return
    origin = "as given" if tokens_per_s else f"as measured in {config.out}"
    yield f"at most {timedelta(seconds=round(generated_tokens / rate))} h at {rate:.1f} tokens/s, {origin}"


def _n_missing(config: RunConfig, problems: Sequence[Problem]) -> int:
    """Return how many candidates of the problems that a run would go on with are not there yet."""
    n, finished = config.method.n, count_finished(config.out)
    results = results_of(read_results(config.out), [problem.id for problem in problems], n)
    done = {result.problem_id for result in results if result.is_settled}
    pending = [problem.id for problem in problems if problem.id not in done]
    if not config.method.samples_whole:
        return n * len(pending)
    return sum(max(n - finished[problem_id], 0) for problem_id in pending)
