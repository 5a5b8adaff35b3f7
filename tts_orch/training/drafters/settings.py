"""Settings of `tts-orch drafter train`: which texts a draft head learns from, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tts_orch.config import EngineConfig, LawConfig
from tts_orch.errors import ConfigError
from tts_orch.settings import Settings

__all__ = ["DataPart", "DraftHeadSettings", "DrafterTrainingConfig"]


class DataPart(Settings):
    """One file of a mixture."""

    file: Path
    """JSON lines, plain or .gz: prompts with answers, or problems as `tts-orch run` reads them where the target answers."""
    tokens: int | None = Field(None, ge=1)
    """Answer tokens to learn from, exactly; None takes all."""
    answer_field: str | None = None
    """Field with the answer of a line, where it is not that of the other files."""


class DraftHeadSettings(Settings):
    """The losses, and how long and how fast the head learns."""

    loss: Literal["eagle2", "hass"] = "eagle2"
    """eagle2: one pass over the target's features. hass: several passes, each over the features that the one before predicted,
    and distillation of the target's ten most probable tokens."""
    passes: int = Field(3, ge=1, le=8)
    """hass: aligned passes over every text."""
    feature_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """Weight of the distance between predicted and true features."""
    law_weight: float = Field(0.1, ge=0, allow_inf_nan=False)
    """Weight of the cross-entropy against the target's law."""
    top_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """hass: weight of the cross-entropy over the target's ten most probable tokens."""
    noise: float = Field(0.2, ge=0, allow_inf_nan=False)
    """Width of the uniform noise that is added to the target's features."""
    learning_rate: float = Field(3e-4, gt=0, allow_inf_nan=False)
    """Largest learning rate of AdamW; it rises to it in a straight line, and falls to 0 in another."""
    warm_up: float = Field(0.05, ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Weight decay of AdamW."""
    clip: float = Field(0.5, gt=0, allow_inf_nan=False)
    """Largest norm of a step's gradients."""
    batch_tokens: int = Field(2048, ge=1)
    """Tokens of a step, padding included."""
    epochs: float = Field(3.0, gt=0, allow_inf_nan=False)
    """Passes over the data, where token_passes does not say how long to train."""
    token_passes: int | None = Field(None, ge=1)
    """Answer tokens to learn from before the training ends, a token counted once for every time that it is read: three times a
    text with three passes of hass. So heads of different losses and mixtures are trained for the same effort."""
    report_every: int = Field(50, ge=1)
    """Steps between reports, each with a judgement on held-out texts and a checkpoint."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of the matrix products; `auto` is bfloat16 on GPUs. CPUs with matrix units for bfloat16 gain from it too."""

    @property
    def n_passes(self) -> int:
        """How often a step reads its texts."""
        return self.passes if self.loss == "hass" else 1


class DrafterTrainingConfig(Settings):
    """Everything that fixes a draft head."""

    data: tuple[DataPart, ...]
    """Texts to learn from: FILE or FILE:TOKENS, answer tokens to take of it; give it several times for a mixture."""
    data_folder: Path = Path()
    """Where the files are."""
    answers: Literal["given", "target"] = "given"
    """given: the answers in the files. target: the target's own, sampled by the law below."""
    answer_field: str = "answer"
    """Field with the answer of a line."""
    out: Path
    """Folder of the head; a training that was stopped goes on in it."""
    cache: Path | None = None
    """Folder of the target's features and answers, which several trainings may share; without it it is in `out`."""
    template: Literal["auto", "raw", "chat"] = "auto"
    """How a prompt becomes tokens, as in `tts-orch run`."""
    max_length: int = Field(1024, ge=8)
    """Tokens of a text, the prompt included; the rest is cut off."""
    held_out: float = Field(0.03, gt=0, lt=1)
    """Share of the prompts that are kept from training, for the evaluation."""
    max_held_out: int = Field(32, ge=1)
    """Texts of a file that are judged at most."""
    seed: int = Field(0, ge=0)
    """Fixes the choice of the data, the first weights and the order of the texts."""
    head: DraftHeadSettings = DraftHeadSettings()
    law: LawConfig = LawConfig()
    engine: EngineConfig
    workers: int = Field(1, ge=1)
    """Processes that share every step; more than one on machines of their own need a shared folder."""
    address: str | None = None
    """Ray cluster to connect to; without one a local cluster is started."""

    @model_validator(mode="after")
    def _has_data(self) -> DrafterTrainingConfig:
        if not self.data:
            raise ConfigError("data: there is nothing to learn from; give at least one file")
        return self

    @property
    def cache_folder(self) -> Path:
        """Where features and answers are kept."""
        return self.cache or self.out / "cache"
