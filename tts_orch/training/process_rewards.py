"""From labelled solutions to the folder of a process reward head, each part kept on disk until its settings change."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import torch

from tts_orch.errors import ConfigError
from tts_orch.reward_config import Reads
from tts_orch.rewards.process_head import HeadConfig, ProcessHead, write_head
from tts_orch.rewards.trained_head import prompt_form
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.head_training import train_head
from tts_orch.training.labelled_data import LabelledData
from tts_orch.training.settings import RewardTrainingConfig
from tts_orch.training.step_features import StepData, step_data
from tts_orch.training.step_verdicts import StepVerdicts, judge_scores

__all__ = ["OnProgress", "TrainedHead", "settings_key", "train_process_head"]

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Told what is done, how much of it, and how much there is of it."""

_WHAT_IS_READ: Final[Mapping[Reads, str]] = {
    "hidden_state": "hidden states",
    "likelihood": "likelihoods",
    "both": "hidden states and likelihoods",
}


@dataclass(frozen=True, slots=True)
class TrainedHead:
    """A head that is on disk.

    Attributes:
        config: what it is.
        training: verdicts on the steps that it was trained on.
        held_out: on all steps of other problems.
        held_out_last: on the last steps alone: whole solutions.
    """

    config: HeadConfig
    training: StepVerdicts
    held_out: StepVerdicts
    held_out_last: StepVerdicts


def settings_key(**settings: Any) -> str:
    """Return a short hash of settings, the name of what was made with them."""
    return hashlib.blake2b(json.dumps(settings, sort_keys=True).encode(), digest_size=8).hexdigest()


def train_process_head(
    config: RewardTrainingConfig, data: LabelledData, base: BaseFiles, cache: Path, on_progress: OnProgress
) -> TrainedHead:
    """Train a head, judge it on the held-out problems and write its folder.

    Args:
        config: all settings.
        data: labelled solutions.
        base: the base model, loaded if hidden states are missing.
        cache: folder for hidden states and checkpoints.
        on_progress: told how far it is.

    Raises:
        ConfigError: a part has no labelled step, or the base model has no such layer.
    """
    work = _Training(config, data, base, _template(config, base), cache, on_progress)
    steps = work.steps()
    is_held_out = torch.tensor(data.is_held_out)[steps.problems]
    training, held_out = steps.part(~is_held_out), steps.part(is_held_out)
    _check(training, held_out)
    head = work.head(training)
    verdicts = [_verdicts(head, part) for part in (training, held_out, held_out.part(held_out.is_last))]
    trained = TrainedHead(_with_figures(work.head_config(), *verdicts), *verdicts)
    write_head(config.out, trained.config, head)
    return trained


@dataclass(frozen=True, slots=True)
class _Training:
    """The parts of one training."""

    config: RewardTrainingConfig
    data: LabelledData
    base: BaseFiles
    template: Literal["raw", "chat"]
    cache: Path
    on_progress: OnProgress

    def steps(self) -> StepData:
        """Return what the head reads at all labelled steps."""
        problems, reads = self.data.problems, self.config.head.reads
        return step_data(
            problems,
            prompt_form(self.base.tokenizer, self.head_config()),
            self.base.max_tokens,
            partial(self.base.load, self.config.head.layer, reads),
            self.cache / f"features-{self._features_key()}",
            lambda n_done: self.on_progress(_WHAT_IS_READ[reads], n_done, len(problems)),
        )

    def head(self, training: StepData) -> ProcessHead:
        """Return the head trained on these steps."""
        settings, seed = self.config.head, self.config.seed
        key = settings_key(
            features=self._features_key(), head=settings.model_dump(), seed=seed, split=list(self.data.is_held_out)
        )
        checkpoint = self.cache / f"head-{key}.pt"
        return train_head(
            training,
            settings,
            seed,
            checkpoint,
            lambda n_done, _: self.on_progress("training", n_done, settings.epochs),
        )

    def head_config(self) -> HeadConfig:
        """Return the head's configuration, as far as it is known before the training."""
        settings = self.config.head
        source = {**self.data.provenance, "seed": self.config.seed, "head": settings.model_dump()}
        return HeadConfig(
            base_model=self.config.engine.target,
            base_weights=self.base.weights_id,
            dtype=self.base.dtype_name,
            template=self.template,
            delimiters=self.config.delimiters,
            layer=settings.layer,
            reads=settings.reads,
            kind=settings.kind,
            width=settings.width if settings.kind == "mlp" else 0,
            hidden_size=self.base.hidden_size,
            training=source,
        )

    def _features_key(self) -> str:
        problems = self.data.problems
        return settings_key(
            content=[(asdict(problem), [one.to_json() for one in solutions]) for problem, solutions in problems],
            base=self.base.weights_id,
            dtype=self.base.dtype_name,
            template=self.template,
            mark=self.config.delimiters[0],
            layer=self.config.head.layer,
            reads=self.config.head.reads,
        )


def _with_figures(
    config: HeadConfig, training: StepVerdicts, held_out: StepVerdicts, held_out_last: StepVerdicts
) -> HeadConfig:
    figures = {**asdict(held_out), "last_steps": asdict(held_out_last)}
    return config.model_copy(update={"training": {**config.training, "steps": training.steps}, "held_out": figures})


def _template(config: RewardTrainingConfig, base: BaseFiles) -> Literal["raw", "chat"]:
    if config.template != "auto":
        return config.template
    return "chat" if base.tokenizer.chat_template else "raw"


def _check(training: StepData, held_out: StepData) -> None:
    for name, part in (("training", training), ("held-out", held_out)):
        if not len(part.labels):
            raise ConfigError(f"held_out: no {name} problem has a labelled step; give more problems, or another share")


def _verdicts(head: ProcessHead, part: StepData) -> StepVerdicts:
    scores = torch.sigmoid(head(part.features))
    return judge_scores(scores.numpy(), part.labels.numpy(), part.problems.numpy())
