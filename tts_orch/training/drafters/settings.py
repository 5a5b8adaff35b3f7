"""Settings of `tts-orch drafter train`: which texts a draft head learns from, and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, NonNegativeInt, model_validator

from tts_orch.config import EngineConfig, LawConfig
from tts_orch.errors import ConfigError
from tts_orch.settings import Settings

__all__ = ["DataPart", "DraftHeadSettings", "DrafterTrainingConfig"]


_PASSES: Final = {"eagle2": 1, "hass": 3, "eagle3": 5}
_OF_LOSSES: Final = {
    "passes": ("hass", "eagle3"),
    "step_decay": ("eagle3",),
    "feature_weight": ("eagle2", "hass"),
    "law_weight": ("eagle2", "hass"),
    "top_weight": ("hass",),
    "noise": ("eagle2", "hass"),
}


class DataPart(Settings):
    """One file of a mixture."""

    file: Path
    """JSON lines, plain or .gz: prompts with answers, or problems as `tts-orch run` reads them where the target answers."""
    tokens: int | None = Field(None, ge=1)
    """Answer tokens to learn from, exactly; None takes all."""
    answer_field: str | None = None
    """Field with the answer of a line, where it is not that of the other files."""
    rows: tuple[NonNegativeInt, NonNegativeInt | None] = (0, None)
    """Lines of the file that are used, from the first, counted from 0, to the one before the second; None is the file's end."""

    @property
    def lines(self) -> slice:
        """The same as a slice."""
        return slice(*self.rows)


class DraftHeadSettings(Settings):
    """The losses, and how long and how fast the head learns."""

    loss: Literal["eagle2", "hass", "eagle3"] = "eagle2"
    """eagle2: one pass over the target's features. hass: several passes, each over the features that the one before predicted,
    and distillation of the target's ten most probable tokens. eagle3: a head of another architecture, that reads three hidden
    states and has an LM head of its own, in several passes over its own states."""
    passes: int | None = Field(None, ge=1, le=8)
    """hass, eagle3: aligned passes over every text; None is 3 for hass, and for eagle3 5, as deep as trees are drafted by default:
    it never sees its own states of deeper tokens."""
    step_decay: float = Field(0.8, gt=0, le=1)
    """eagle3: weight of a pass, as a share of the one's before."""
    feature_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """eagle2, hass: weight of the distance between predicted and true features."""
    law_weight: float = Field(0.1, ge=0, allow_inf_nan=False)
    """eagle2, hass: weight of the cross-entropy against the target's law."""
    top_weight: float = Field(1.0, ge=0, allow_inf_nan=False)
    """hass: weight of the cross-entropy over the target's ten most probable tokens."""
    noise: float = Field(0.2, ge=0, allow_inf_nan=False)
    """eagle2, hass: width of the uniform noise that is added to the target's features."""
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

    @model_validator(mode="after")
    def _are_of_the_loss(self) -> DraftHeadSettings:
        for name in sorted(self.model_fields_set & self._unused):
            raise ConfigError(f"{name}: it means nothing to {self.loss}; leave it out, or choose another loss")
        return self

    @property
    def n_passes(self) -> int:
        """How often a step reads its texts."""
        return _PASSES[self.loss] if self.passes is None else self.passes

    @property
    def in_use(self) -> dict[str, Any]:
        """The settings that mean something to the loss, by name."""
        settings = self.model_dump(exclude=self._unused)
        return settings | ({"passes": self.n_passes} if "passes" in settings else {})

    @property
    def _unused(self) -> set[str]:
        return {name for name, losses in _OF_LOSSES.items() if self.loss not in losses}


class DrafterTrainingConfig(Settings):
    """Everything that fixes a draft head."""

    data: tuple[DataPart, ...]
    """Texts to learn from: FILE or FILE:TOKENS, answer tokens to take of it; give it several times for a mixture."""
    data_folder: Path = Path()
    """Where the files are."""
    answers: Literal["given", "target"] = "given"
    """given: the answers in the files. target: the target's own, sampled by the law below."""
    answer_field: str = "answer"
    """Field with the answer of a line; `messages` is a conversation of which all turns of the assistant are learned."""
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
    vocabulary: Path | None = None
    """File of the tokens that the head may propose, made by `tts-orch vocabulary trim`; without it all of the target's."""
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
