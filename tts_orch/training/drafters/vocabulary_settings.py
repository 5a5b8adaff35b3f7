"""Settings of `tts-orch vocabulary trim`: which texts are counted, and how many tokens a draft vocabulary gets."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from tts_orch.errors import ConfigError
from tts_orch.training.drafters.settings import DataPart, DrafterTrainingConfig

__all__ = ["VocabularyConfig"]


class VocabularyConfig(DrafterTrainingConfig):
    """Everything that fixes a draft vocabulary; what a recipe says of the training of its head is read over."""

    data: tuple[DataPart, ...] = ()
    """Texts to count: FILE or FILE:TOKENS, answer tokens to take of it; give it several times for a mixture."""
    runs: tuple[Path, ...] = ()
    """Folder of a finished `tts-orch run` of the same target, whose candidates are counted; may be given several times."""
    out: Path
    """Folder of vocabulary.safetensors, report.json and vocabulary.png; what is there of an earlier command is replaced."""
    held_out: float = Field(0.03, gt=0, lt=1)
    """Share of the prompts that are not counted; those that `tts-orch drafter train` keeps from training, by the same share."""
    max_held_out: int = Field(256, ge=1)
    """Texts of a file that are held out at most: not counted, but for the coverage of texts that nobody has counted."""
    seed: int = Field(0, ge=0)
    """Fixes which texts of a file are counted, as in `tts-orch drafter train`."""
    workers: int = Field(1, ge=1)
    """Processes that decode the target's own answers; more than one on machines of their own need a shared folder."""
    alpha: float = Field(0.5, ge=0, le=1)
    """Weight of coverage in the utility; the rest is the weight of the operations that are saved."""
    min_coverage: float = Field(0.9, ge=0, le=1)
    """Share of the counted tokens that the vocabulary must have."""
    trials: int = Field(100, ge=1)
    """Sizes that the sampler (TPE) tries."""
    trial_seed: int = Field(42, ge=0)
    """Fixes which sizes the sampler tries."""
    architecture: Literal["eagle", "eagle3"] = "eagle3"
    """Kind of the head whose operations are counted, as wide as a layer of the target: eagle is EAGLE-2 and HASS."""
    drafter: Path | None = None
    """Folder of a head whose operations are counted instead; needed to measure."""
    objective: Literal["utility", "measured"] = "utility"
    """utility: coverage and saved operations, by their weights. measured: tokens a second, with the drafter on this device."""
    sizes: int = Field(8, ge=3)
    """measured: sizes that are tried, the best one by utility and the whole vocabulary among them."""
    replay_tokens: int = Field(1000, ge=1)
    """measured: tokens of held-out texts on which every size drafts."""
    keep: tuple[str, ...] = ()
    """Text or number of a token to keep besides special tokens, digits and the ends of steps; of a text all tokens are kept.
    May be given several times."""
    delimiters: tuple[str, ...] = ("\n\n",)
    """Text that ends a step: tokens that have it in them are kept."""

    @model_validator(mode="after")
    def _has_data(self) -> VocabularyConfig:
        if not (self.data or self.runs):
            raise ConfigError("data: there is nothing to count; give at least one file, or a run")
        if self.objective == "measured" and self.drafter is None:
            raise ConfigError(
                "drafter: nothing can be measured without one; give the folder of a head, or objective utility"
            )
        return self
