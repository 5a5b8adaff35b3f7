"""Settings of `tts-orch reward train`: what is labelled, how, and what is trained on it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tts_orch.config import EngineConfig, LawConfig
from tts_orch.errors import ConfigError
from tts_orch.reward_config import Reads
from tts_orch.settings import Settings

__all__ = ["HeadSettings", "RewardTrainingConfig", "RolloutSettings"]


class RolloutSettings(Settings):
    """How steps are labelled by what becomes of them.

    Source: Math-Shepherd, arXiv 2312.08935, section 3.
    """

    solutions: int = Field(4, ge=1)
    """Solutions of a problem whose steps are labelled."""
    rollouts: int = Field(4, ge=0)
    """Completions sampled after every step; 0 with the estimate `reference` alone."""
    estimate: Literal["soft", "hard", "reference"] = "soft"
    """Label of a step: the share of completions that reach the right answer, or 1 where any of them does (hard); or whether
    it and all before it have the results of the reference solution (`step_answers` of the problems)."""

    @model_validator(mode="after")
    def _has_labels(self) -> RolloutSettings:
        if not self.rollouts and self.estimate != "reference":
            raise ConfigError("rollouts: steps are labelled by them; give 1 or more, or the estimate reference")
        return self


class HeadSettings(Settings):
    """The head, and how it is trained; the base model is never changed."""

    kind: Literal["linear", "mlp"] = "linear"
    """A linear map of a hidden state, or one with a hidden layer between."""
    width: int = Field(128, ge=1)
    """mlp: size of the hidden layer."""
    layer: int = -1
    """Hidden states that the head reads: 0 are the embeddings, -1 is the last layer's output."""
    reads: Reads = "hidden_state"
    """What the head reads of a step: the base model's hidden state at its end, or how likely the model finds the tokens of the
    step (mean and least log-probability) and of all steps so far (sum and least one), or both. The whole model is run for
    likelihoods, whatever the layer."""
    epochs: int = Field(60, ge=1)
    """Passes over the training steps."""
    batch_size: int = Field(64, ge=1)
    """Steps in a batch."""
    learning_rate: float = Field(1e-3, gt=0, allow_inf_nan=False)
    """Learning rate of AdamW at the start; it falls to 0 in a straight line."""
    weight_decay: float = Field(0.1, ge=0, allow_inf_nan=False)
    """Weight decay of AdamW."""


class RewardTrainingConfig(Settings):
    """Everything that fixes a process reward head."""

    problems: Path | None = None
    """Problems with answers, JSON lines; the target itself labels the steps of its solutions."""
    labels: Path | None = None
    """Instead of PROBLEMS: solutions with labels, JSON lines of prompt, steps and step_labels; .gz is read too."""
    held_out_problems: Path | None = None
    """Problems that are solved and labelled for the evaluation alone; without them it is a share of PROBLEMS."""
    held_out: float = Field(0.2, gt=0, lt=1)
    """Share of the problems that are kept from training, for the evaluation."""
    out: Path
    """Folder of the head; what was done in it already is not done again."""
    limit: int | None = Field(None, ge=1)
    """Take the first so many problems only."""
    seed: int = Field(0, ge=0)
    """Fixes the rollouts and the training."""
    template: Literal["auto", "raw", "chat"] = "auto"
    """How a prompt becomes tokens, as in `tts-orch run`."""
    delimiters: tuple[str, ...] = ("\n\n",)
    """Texts that end a step; the first one marks the ends of steps for the head."""
    rollout: RolloutSettings = RolloutSettings()
    head: HeadSettings = HeadSettings()
    law: LawConfig = LawConfig()
    engine: EngineConfig
    workers: int = Field(1, ge=1)
    """Target verifiers that share the work."""
    address: str | None = None
    """Ray cluster to connect to; without one a local cluster is started."""

    @model_validator(mode="after")
    def _has_one_source(self) -> RewardTrainingConfig:
        if (self.problems is None) == (self.labels is None):
            raise ConfigError(
                "problems: give either PROBLEMS to label by rollouts, or --labels with a file of labelled steps"
            )
        if self.held_out_problems is not None and self.problems is None:
            raise ConfigError("held_out_problems: they are labelled by rollouts; give PROBLEMS too, or leave them out")
        if not self.delimiters or not all(self.delimiters):
            raise ConfigError("delimiters: a step needs an end; give at least one text that is not empty")
        return self
