"""What `tts-orch drafter train` does with its settings: texts first, then the training on the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from functools import partial

from rich.console import Console
from rich.table import Table

from tts_orch.cli.drafter_texts import sequences_of
from tts_orch.cli.reward_training import progress_bars
from tts_orch.cli.signals import heed_signals
from tts_orch.cli.training_folder import training_folder
from tts_orch.errors import ConfigError
from tts_orch.figures import load_figures
from tts_orch.json_lines import read_json_lines
from tts_orch.placement_config import ANYWHERE
from tts_orch.settings import existing_file
from tts_orch.training.base_model import read_base_files
from tts_orch.training.drafters.chosen_vocabulary import chosen_vocabulary
from tts_orch.training.drafters.curves import draw_training
from tts_orch.training.drafters.feature_shards import SEQUENCES_A_SHARD
from tts_orch.training.drafters.head_shape import head_shape
from tts_orch.training.drafters.head_training import Report
from tts_orch.training.drafters.member import REPORTS, MixtureParts, OnProgress
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.training.drafters.training_sequences import choose_sequences, n_training_tokens

__all__ = ["train_drafter"]


def train_drafter(config: DrafterTrainingConfig) -> None:
    """Train a head, or go on with it, and print how well it drafts.

    Raises:
        OrchestratorError: the training cannot begin or go on.
        KeyboardInterrupt: stopped by SIGINT or SIGTERM; its message says how to go on.
    """
    heed_signals()
    load_figures()  # before hours of training, not after them
    console = Console()
    config = _with_absolute_paths(config)
    caches = config.out / "cache", config.cache_folder
    with training_folder(config.out, *caches), progress_bars(console) as on_progress:
        _train(config, _parts(config, on_progress), on_progress)
    reports = [Report.from_json(line.values) for line in read_json_lines(config.out / REPORTS)]
    draw_training(reports, config.out / "training.png")
    console.print(_table(reports), f"\n{config.out}", sep="")


def _with_absolute_paths(config: DrafterTrainingConfig) -> DrafterTrainingConfig:
    """Return the settings as processes with other working directories read them."""
    vocabulary = existing_file(config.vocabulary, "vocabulary", "tts-orch vocabulary trim")
    paths = {"out": config.out.absolute(), "cache": config.cache_folder.absolute(), "vocabulary": vocabulary}
    return config.model_copy(update=paths)


def _train(config: DrafterTrainingConfig, parts: MixtureParts, on_progress: OnProgress) -> None:
    from tts_orch.actors.cluster import Cluster  # loads Ray
    from tts_orch.actors.drafter_training import train_on_cluster

    with closing(Cluster(config.address)) as cluster:
        heed_signals()  # once more: Ray has set a handler of its own
        train_on_cluster(config, parts, cluster.share_out(config.engine, config.workers, ANYWHERE), on_progress)


def _parts(config: DrafterTrainingConfig, on_progress: OnProgress) -> MixtureParts:
    """Return the texts of every file; each must have some to train on, and there must be some to judge."""
    base = read_base_files(config.engine)
    head_shape(config, base, chosen_vocabulary(config, base))  # a mistake shows before hours of sampling
    parts = []
    for part in config.data:
        on_answered = partial(on_progress, f"answers, {part.file.name}")
        with closing(sequences_of(config, part, base, on_answered=on_answered)) as texts:
            parts.append(choose_sequences(texts, part.tokens, config.max_held_out, SEQUENCES_A_SHARD))
    for part, sequences in zip(config.data, parts, strict=True):
        n_tokens = n_training_tokens(sequences)
        if n_tokens < (part.tokens or 1):
            raise ConfigError(
                f"data: {part.file} has {n_tokens} answer tokens to learn from, not {part.tokens or 'any'}; take fewer, or "
                "more texts"
            )
    if not any(one.is_held_out and one.n_laws for sequences in parts for one in sequences):
        raise ConfigError("held_out: no text is left to judge the head by; give more texts, or a larger share")
    return parts


def _table(reports: Sequence[Report]) -> Table:
    """Return the judgements at the beginning, halfway and at the end."""
    depths = range(1, len(reports[-1].accuracy.acceptance) + 1)
    table = Table("step", "loss", *(f"{depth} right" for depth in depths), "tau", title="Greedy drafts, held-out texts")
    for report in dict.fromkeys([reports[0], reports[len(reports) // 2], reports[-1]]):
        shares = (f"{share:.3f}" for share in report.accuracy.acceptance)
        table.add_row(f"{report.step}/{report.n_steps}", f"{report.loss:.3f}", *shares, f"{report.accuracy.tau:.2f}")
    return table
