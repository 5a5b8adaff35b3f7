"""What every process of a training does: its share of the target's features first, then the training together."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import torch

from tts_orch.atomic_file import write_atomically
from tts_orch.drafters.checkpoint import save_head
from tts_orch.engine.model_files import tokenizer_id
from tts_orch.engine.threads import set_threads
from tts_orch.json_lines import json_line
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.drafters.chosen_vocabulary import chosen_vocabulary
from tts_orch.training.drafters.feature_shards import features_key, write_missing
from tts_orch.training.drafters.first_weights import first_head
from tts_orch.training.drafters.head_shape import head_shape
from tts_orch.training.drafters.head_training import HeadTraining, Report, Team
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.training.drafters.target_ends import target_ends
from tts_orch.training.drafters.target_laws import load_frozen_target
from tts_orch.training.drafters.training_sequences import TrainingSequence, n_training_tokens
from tts_orch.training.drafters.training_texts import texts_of
from tts_orch.training.process_rewards import settings_key
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["REPORTS", "MixtureParts", "OnProgress", "train_member"]

MixtureParts: TypeAlias = Sequence[Sequence[TrainingSequence]]
"""The texts of every file of a mixture, in order."""

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Told what is done, how much of it, and how much there is of it."""

REPORTS: Final = "training.jsonl"


def train_member(config: DrafterTrainingConfig, parts: MixtureParts, team: Team, on_progress: OnProgress) -> None:
    """Train a head with a team; member 0 writes its folder, and reports beside it as they come.

    Args:
        config: all settings; paths absolute, of folders that all members see.
        parts: the texts.
        team: who trains.
        on_progress: told how far it is.

    Raises:
        ConfigError: the draft vocabulary is for another target, or not the one that the training was begun with.
        TargetError: no head can be trained for the target.
        RunError: the training diverged.
    """
    if config.engine.threads:
        set_threads(config.engine.threads)
    warnings.filterwarnings(
        "ignore", "Mismatch dtype between input and weight"
    )  # norms under autocast, right all the same
    files = read_base_files(config.engine)
    vocabulary = chosen_vocabulary(config, files)
    shape = head_shape(config, files, vocabulary)
    training = _training(config, files, parts, shape.feature_layers, vocabulary, team, on_progress)
    head = first_head(shape, vocabulary, training.ends, config.seed)

    def on_reports(reports: Sequence[Report]) -> None:
        on_progress("training", reports[-1].step, reports[-1].n_steps)
        if team.rank == 0:
            write_atomically(config.out / REPORTS, "".join(json_line(report.to_json()) for report in reports))

    checkpoint = config.out / "cache" / f"head-{_head_key(config, files, parts)}.pt"
    reports = training.run(head, checkpoint, team, on_reports)
    if team.rank == 0:
        head.config = replace(
            shape,
            target_weights_id=files.weights_id,
            target_tokenizer_id=tokenizer_id(files.tokenizer),
            trained_by={**_provenance(config, parts), "held_out": reports[-1].accuracy.to_json()},
        )
        save_head(config.out, head)


def _training(
    config: DrafterTrainingConfig,
    files: BaseFiles,
    parts: MixtureParts,
    layers: Sequence[int],
    vocabulary: DraftVocabulary | None,
    team: Team,
    on_progress: OnProgress,
) -> HeadTraining:
    """Return the training, when all features are there."""
    folder = config.cache_folder / features_key(files.weights_id, files.dtype_name, layers)
    folder.mkdir(parents=True, exist_ok=True)
    shards, texts, held_out = texts_of(parts, folder, layers)
    target = load_frozen_target(files, config.engine.target)
    mine = shards[team.rank :: team.size]
    write_missing(mine, target, lambda n_done: on_progress("features", n_done, len(mine)))
    team.wait()
    ends = target_ends(target, vocabulary, _precision(config.head.precision, files.device))
    return HeadTraining(texts, held_out, ends, config.head, config.seed)


def _precision(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        name = "bfloat16" if device.type == "cuda" else "float32"
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def _head_key(config: DrafterTrainingConfig, files: BaseFiles, parts: MixtureParts) -> str:
    texts = hashlib.blake2b(digest_size=16)
    for one in (sequence for part in parts for sequence in part):
        texts.update(f"{one.n_prompt} {one.length} {one.is_held_out} ".encode() + one.token_ids.tobytes())
    return settings_key(
        texts=texts.hexdigest(),
        target=files.weights_id,
        dtype=files.dtype_name,
        head=config.head.in_use,
        seed=config.seed,
    )


def _provenance(config: DrafterTrainingConfig, parts: MixtureParts) -> dict[str, Any]:
    data = [
        {"file": part.file.name, "tokens": n_training_tokens(sequences), "texts": sum(map(_is_trained_on, sequences))}
        for part, sequences in zip(config.data, parts, strict=True)
    ]
    texts: dict[str, Any] = {"data": data, "answers": config.answers, "template": config.template, "seed": config.seed}
    if config.vocabulary:
        texts["vocabulary"] = str(config.vocabulary)
    return {**texts, **config.head.in_use}


def _is_trained_on(sequence: TrainingSequence) -> bool:
    return sequence.n_laws > 0 and not sequence.is_held_out
