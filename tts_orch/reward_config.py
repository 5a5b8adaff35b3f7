"""Settings of the reward model that scores candidates and their steps."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field, model_validator

from tts_orch.errors import ConfigError
from tts_orch.settings import Settings

__all__ = ["OWN_KINDS", "WITHOUT_MODEL", "Reads", "RewardConfig", "RewardKind"]

RewardKind: TypeAlias = Literal[
    "qwen_math_prm",
    "rlhflow_prm",
    "rlhflow_orm",
    "skywork_prm",
    "math_shepherd",
    "classifier",
    "judge",
    "trained_head",
    "callable",
    "code_tests",
    "self_certainty",
    "likelihood",
]

OWN_KINDS: Final = ("self_certainty", "likelihood")
"""Kinds that are the target's own word for it, and need nothing but what it sampled."""

WITHOUT_MODEL: Final = ("callable", "code_tests", *OWN_KINDS)
"""Kinds that read no tokens and have no use for a GPU."""

Reads: TypeAlias = Literal["hidden_state", "likelihood", "both"]
"""What a trained head reads of a step: the base model's hidden state at its end, how likely the model finds the step and all
before it, or one behind the other."""


class RewardConfig(Settings):
    """One reward model: what it is, and the device it runs on."""

    model: str | None = None
    """A local folder or a hub id; for kind callable `package.module:function`; kind judge loads the target
    once more if not given."""
    kind: Literal["auto"] | RewardKind = "auto"
    """How the model is prompted and read; `auto` tells it by the model's name and configuration, where that is sure.
    `self_certainty` and `likelihood` take none: how certain the target was of a step, or how likely it finds the solution so
    far, is the score."""
    device: str = "auto"
    """`auto` (a GPU that is left over, else CPUs), `cpu` or `cuda`."""
    dtype: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"
    """Weights' type; `auto` is float32 on CPUs and bfloat16 on GPUs."""
    batch: int = Field(16, ge=1)
    """Candidates read in one pass."""
    max_context: int | None = Field(None, ge=2)
    """Tokens of prompt and solution; longer solutions get no score. The model's own limit if not given."""
    delimiters: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(None, min_length=1)
    """Texts that end a step, best those of the search method; what a trained head was trained with, else an empty line, if
    not given."""
    kv_memory_gib: float = Field(1.0, ge=0)
    """Memory for keys and values of prefixes that were read before."""
    threads: int | None = Field(None, ge=1)
    """CPU threads; half the cores of the machine if not given, for the verifiers compute at the same time."""
    timeout_s: float = Field(600.0, gt=0)
    """Seconds that one batch may take; after them the reward model is started anew."""

    @model_validator(mode="after")
    def _is_named(self) -> RewardConfig:
        if self.model is not None and self.kind in OWN_KINDS:
            raise ConfigError(f"reward.model: kind {self.kind} reads no model, not {self.model}; leave one of both out")
        if self.model is None and self.kind not in ("judge", "code_tests", *OWN_KINDS):
            raise ConfigError(
                f"reward.model: kind {self.kind} needs one; give a folder, a hub id or package.module:function"
            )
        return self
