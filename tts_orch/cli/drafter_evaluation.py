"""What `tts-orch drafter eval` does: every head against the held-out texts of every file, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path

from rich.console import Console
from rich.table import Column, Table

from tts_orch.cli.drafter_texts import sequences_of
from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.errors import ConfigError
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.drafters.draft_accuracy import DEPTHS, judged_head
from tts_orch.training.drafters.feature_shards import features_key, write_missing
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.training.drafters.target_ends import target_ends
from tts_orch.training.drafters.target_laws import FrozenTarget, load_frozen_target
from tts_orch.training.drafters.training_sequences import TrainingSequence
from tts_orch.training.drafters.training_texts import TrainingTexts, texts_of

__all__ = ["evaluate_heads"]


def evaluate_heads(folders: Sequence[Path], config: DrafterTrainingConfig) -> None:
    """Judge heads by the prompts that no training with the same held-out share has read, and print a table.

    Raises:
        OrchestratorError: a head or a file cannot be read, or a head is for another target.
    """
    base = read_base_files(config.engine)
    heads = [_head(folder, base) for folder in folders]
    target = load_frozen_target(base, config.engine.target)
    names = (Column(name, overflow="fold") for name in ("head", "file"))
    table = Table(*names, *(f"{depth} right" for depth in range(1, DEPTHS + 1)), "tau")
    for part in config.data:
        with closing(sequences_of(config, part, base, only_held_out=True)) as sequences:
            held_out = [*islice(sequences, config.max_held_out)]
        for folder, head in zip(folders, heads, strict=True):
            texts = _texts(held_out, head.config.feature_layers, target, config, base)
            _check(texts, part.file)
            ends = target_ends(target, head.vocabulary, target.output.dtype)
            accuracy = judged_head(head, texts, ends, config.head.batch_tokens)
            shares = (f"{share:.3f}" for share in accuracy.acceptance)
            table.add_row(str(folder), part.file.name, *shares, f"{accuracy.tau:.2f}")
    Console().print(table)


def _head(folder: Path, base: BaseFiles) -> DraftHead:
    head = read_head(folder)
    if head.config.target_weights_id != base.weights_id:
        raise ConfigError(f"{folder}: a head for another target; give the target that it was trained for")
    return head.to(base.device).eval()


def _texts(
    sequences: Sequence[TrainingSequence],
    layers: Sequence[int],
    target: FrozenTarget,
    config: DrafterTrainingConfig,
    base: BaseFiles,
) -> TrainingTexts:
    folder = config.cache_folder / features_key(base.weights_id, base.dtype_name, layers)
    folder.mkdir(parents=True, exist_ok=True)
    shards, _, texts = texts_of([sequences], folder, layers)
    write_missing(shards, target, lambda _: None)
    return texts


def _check(texts: TrainingTexts, file: Path) -> None:
    if not texts.lengths:
        raise ConfigError(f"held_out: no text of {file} is left to judge a head by; give more texts, or a larger share")
