"""What `tts-orch drafter train` does with its settings: texts first, then the training on the cluster."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tts_orch.cli.reward_training import progress_bars
from tts_orch.cli.signals import heed_signals
from tts_orch.errors import ConfigError
from tts_orch.folder_lock import FolderLock
from tts_orch.journal import Journal
from tts_orch.json_lines import read_json_lines
from tts_orch.placement_config import ANYWHERE
from tts_orch.records import Problem, SearchResult
from tts_orch.run_folder import unusable
from tts_orch.tasks.problems import read_problems
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.drafters.curves import draw_training
from tts_orch.training.drafters.feature_shards import SEQUENCES_A_SHARD
from tts_orch.training.drafters.given_answers import Encoding, given_sequences, read_given_answers, shuffled
from tts_orch.training.drafters.head_training import Report
from tts_orch.training.drafters.member import REPORTS, MixtureParts, OnProgress
from tts_orch.training.drafters.settings import DataPart, DrafterTrainingConfig
from tts_orch.training.drafters.target_answers import answered_sequences, one_answer
from tts_orch.training.drafters.training_sequences import TrainingSequence, choose_sequences, n_training_tokens
from tts_orch.training.labelled_data import content_hash
from tts_orch.training.process_rewards import settings_key

__all__ = ["train_drafter"]


def train_drafter(config: DrafterTrainingConfig) -> None:
    """Train a head, or go on with it, and print how well it drafts.

    Raises:
        OrchestratorError: the training cannot begin or go on.
        KeyboardInterrupt: stopped by SIGINT or SIGTERM; its message says how to go on.
    """
    heed_signals()
    console = Console()
    config = _with_absolute_paths(config)
    with ExitStack() as opened:
        _open(config, opened)
        try:
            with progress_bars(console) as on_progress:
                parts = _parts(config)
                _train(config, parts, on_progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; run the same command again to go on in {config.out}") from None
    reports = [Report.from_json(line.values) for line in read_json_lines(config.out / REPORTS)]
    draw_training(reports, config.out / "training.png")
    console.print(_table(reports), f"\n{config.out}", sep="")


def _with_absolute_paths(config: DrafterTrainingConfig) -> DrafterTrainingConfig:
    """Return the settings as processes with other working directories read them."""
    paths = {"out": config.out.absolute(), "cache": config.cache_folder.absolute()}
    return config.model_copy(update=paths)


def _open(config: DrafterTrainingConfig, opened: ExitStack) -> None:
    try:
        for folder in (config.out / "cache", config.cache_folder):
            folder.mkdir(parents=True, exist_ok=True)
        opened.callback(FolderLock(config.out).release)
    except OSError as error:
        raise unusable(config.out, error) from None


def _train(config: DrafterTrainingConfig, parts: MixtureParts, on_progress: OnProgress) -> None:
    from tts_orch.actors.cluster import Cluster  # loads Ray
    from tts_orch.actors.drafter_training import train_on_cluster

    with closing(Cluster(config.address)) as cluster:
        heed_signals()  # once more: Ray has set a handler of its own
        train_on_cluster(config, parts, cluster.share_out(config.engine, config.workers, ANYWHERE), on_progress)


def _parts(config: DrafterTrainingConfig) -> MixtureParts:
    """Return the texts of every file; each must have some to train on, and there must be some to judge."""
    base = read_base_files(config.engine)
    encoding = Encoding(base.tokenizer, config.template, min(config.max_length, base.max_tokens), config.held_out)
    parts = [
        choose_sequences(_sequences(config, part, base, encoding), part.tokens, config.max_held_out, SEQUENCES_A_SHARD)
        for part in config.data
    ]
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


def _sequences(
    config: DrafterTrainingConfig, part: DataPart, base: BaseFiles, encoding: Encoding
) -> Iterator[TrainingSequence]:
    path = config.data_folder / part.file
    if config.answers == "given":
        given = read_given_answers(path, part.answer_field or config.answer_field)
        return given_sequences(shuffled(given, config.seed), encoding)
    folder = config.cache_folder / f"answers-{_answers_key(config, base, path)}"
    folder.mkdir(exist_ok=True)
    problems = shuffled(read_problems(path), config.seed)
    return answered_sequences(problems, encoding, partial(_answer, config, folder))


def _answer(
    config: DrafterTrainingConfig, folder: Path, problems: Sequence[Problem]
) -> Generator[SearchResult, None, None]:
    """Let the target answer prompts; what it said in an earlier training comes from the journal of the folder."""
    from tts_orch.orchestrator import Orchestrator  # loads Ray

    with ExitStack() as opened:
        journal = Journal(folder)
        opened.callback(journal.close)
        orchestrator = opened.enter_context(
            Orchestrator(engine=config.engine, workers=config.workers, address=config.address, template=config.template)
        )
        heed_signals()  # once more: Ray has set a handler of its own
        yield from orchestrator.search_many(problems, one_answer, seed=config.seed, law=config.law, journal=journal)


def _answers_key(config: DrafterTrainingConfig, base: BaseFiles, path: Path) -> str:
    return settings_key(
        prompts=content_hash(path),
        target=base.weights_id,
        dtype=base.dtype_name,
        verification=config.engine.verification,
        law=config.law.model_dump(),
        template=config.template,
        seed=config.seed,
    )


def _table(reports: Sequence[Report]) -> Table:
    """Return the judgements at the beginning, halfway and at the end."""
    depths = range(1, len(reports[-1].accuracy.acceptance) + 1)
    table = Table("step", "loss", *(f"{depth} right" for depth in depths), "tau", title="Greedy drafts, held-out texts")
    for report in dict.fromkeys([reports[0], reports[len(reports) // 2], reports[-1]]):
        shares = (f"{share:.3f}" for share in report.accuracy.acceptance)
        table.add_row(f"{report.step}/{report.n_steps}", f"{report.loss:.3f}", *shares, f"{report.accuracy.tau:.2f}")
    return table
