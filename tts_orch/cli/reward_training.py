"""What `tts-orch reward train` does with its settings: rollouts on the cluster, then training in this process."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tts_orch.cli.signals import heed_signals
from tts_orch.cli.training_folder import training_folder
from tts_orch.cli.training_samples import sampled_by, sampling
from tts_orch.records import Problem, SearchResult
from tts_orch.tasks.thinking import text_decoder, thinking_of
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.labelled_data import LabelledData, content_hash, given_data, rollout_data
from tts_orch.training.labelled_solutions import LabelledSolution
from tts_orch.training.process_rewards import OnProgress, TrainedHead, settings_key, train_process_head
from tts_orch.training.reference_labels import label_by_reference
from tts_orch.training.rollout_cache import RolloutLabels, collect_labels
from tts_orch.training.rollout_labels import label_steps
from tts_orch.training.rollouts import Policy, rollout_policy
from tts_orch.training.settings import RewardTrainingConfig
from tts_orch.training.step_ends import step_ends

__all__ = ["progress_bars", "train_reward"]


def train_reward(config: RewardTrainingConfig) -> None:
    """Train a head, or go on with it, and print how well it judges.

    Raises:
        OrchestratorError: the training cannot begin or go on.
        KeyboardInterrupt: stopped by SIGINT or SIGTERM; its message says how to go on.
    """
    heed_signals()
    console = Console()
    cache = config.out / "cache"
    with training_folder(config.out, cache), progress_bars(console) as on_progress:
        base = read_base_files(config.engine)
        data = _data(config, base, cache, on_progress)
        trained = train_process_head(config, data, base, cache, on_progress)
    console.print(_table(trained), f"\n{config.out}", sep="")


def _data(config: RewardTrainingConfig, base: BaseFiles, cache: Path, on_progress: OnProgress) -> LabelledData:
    if config.labels is not None:
        return given_data(config, config.labels)
    path = config.problems or Path()
    return rollout_data(config, path, partial(_collect, config, base, cache, on_progress))


def _collect(
    config: RewardTrainingConfig,
    base: BaseFiles,
    cache: Path,
    on_progress: OnProgress,
    path: Path,
    problems: Sequence[Problem],
) -> list[RolloutLabels]:
    """Label solutions of the target, in a folder of the cache that belongs to the file and all else that fixes the samples."""
    folder = cache / f"rollouts-{_rollouts_key(config, base, path)}"
    folder.mkdir(exist_ok=True)
    decode = text_decoder(base.tokenizer, thinking_of(base.tokenizer, template=config.template))
    ends = partial(step_ends, decode=decode, delimiters=config.delimiters)

    def label(problem: Problem, result: SearchResult) -> list[LabelledSolution]:
        if config.rollout.estimate == "reference":
            return label_by_reference(problem, result.candidates, config.delimiters)
        return label_steps(problem, result.candidates, config.rollout, ends, config.delimiters)

    return collect_labels(
        problems,
        partial(_generate, config, folder),
        rollout_policy(config.rollout, ends),
        label,
        folder / f"labels-{config.rollout.estimate}.jsonl",
        lambda n: on_progress(f"rollouts of {path.name}", n, len(problems)),
    )


def _generate(
    config: RewardTrainingConfig, folder: Path, problems: Sequence[Problem], policy: Policy
) -> Generator[SearchResult, None, None]:
    """Run a policy over problems with the engine; what an earlier run sampled comes from the journal of the folder."""
    with sampling(config, folder) as generate:
        yield from generate(problems, policy)


def _rollouts_key(config: RewardTrainingConfig, base: BaseFiles, path: Path) -> str:
    return settings_key(
        problems=content_hash(path),
        samples=config.rollout.model_dump(exclude={"estimate"}),
        delimiters=config.delimiters,
        **sampled_by(config, base),
    )


@contextmanager
def progress_bars(console: Console) -> Iterator[OnProgress]:
    """Show a bar for each part of the work on a terminal, and a line at its end elsewhere."""
    columns = (TextColumn("{task.description:26}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks = {}

        def show(part: str, n_done: int, n_all: int) -> None:
            if part not in tasks:
                tasks[part] = bars.add_task(part, total=n_all)
            bars.update(tasks[part], completed=n_done)
            if n_done == n_all and not console.is_terminal:
                console.print(f"{part}: {n_all} done", highlight=False)

        yield show


def _table(trained: TrainedHead) -> Table:
    table = Table("", "steps", "good", "accuracy", "AUC", "AUC within problems", title="Verdicts on steps")
    rows = {"training": trained.training, "held out": trained.held_out, "held out, last steps": trained.held_out_last}
    for name, verdicts in rows.items():
        shares = (verdicts.good_share, verdicts.accuracy, verdicts.auc, verdicts.auc_within_problems)
        table.add_row(name, str(verdicts.steps), *("-" if share is None else f"{share:.3f}" for share in shares))
    return table
