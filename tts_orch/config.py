"""Settings: every one has a name, a default and its bounds here and nowhere else.

`RunConfig` is what a run folder stores; the command line is derived from its fields. Search methods are small models of
their own, chosen by `name`. Unknown keys are errors that suggest the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from tts_orch.budget_config import NO_LIMITS, BudgetConfig
from tts_orch.drafting_config import DrafterName, DraftingConfig, UntrainedName
from tts_orch.errors import ConfigError
from tts_orch.method_config import (
    DVTS,
    BeamSearch,
    BestOfN,
    BudgetForcing,
    MajorityVote,
    MethodConfig,
    ParticleFiltering,
    Rebase,
    ScoredMethod,
    StepwiseMethod,
)
from tts_orch.placement_config import PlacementConfig
from tts_orch.records import SamplingParams
from tts_orch.reward_config import RewardConfig
from tts_orch.settings import Settings
from tts_orch.store_config import StoreConfig
from tts_orch.task_config import TaskConfig

__all__ = [
    "DVTS",
    "BeamSearch",
    "BestOfN",
    "BudgetConfig",
    "BudgetForcing",
    "DrafterName",
    "DraftingConfig",
    "EngineConfig",
    "LawConfig",
    "MajorityVote",
    "MethodConfig",
    "ParticleFiltering",
    "PlacementConfig",
    "Rebase",
    "RewardConfig",
    "RunConfig",
    "Settings",
    "StoreConfig",
    "UntrainedName",
    "check_warm_start",
    "load_config",
]


class LawConfig(Settings):
    """The sampling law as a user writes it; `SamplingParams` documents each field."""

    temperature: float = Field(0.7, ge=0, allow_inf_nan=False)
    """Sampling temperature; 0 takes the most probable token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Keep the smallest set of most probable tokens with this mass."""
    top_k: int = Field(0, ge=0)
    """Keep the k most probable tokens; 0 keeps all."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Keep tokens with at least this share of the largest probability."""
    repetition_penalty: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Penalty on tokens seen in prompt or output."""
    presence_penalty: float = Field(0.0, allow_inf_nan=False)
    """Penalty, once, on tokens seen in the output."""
    frequency_penalty: float = Field(0.0, allow_inf_nan=False)
    """Penalty per occurrence in the output."""
    min_new_tokens: int = Field(0, ge=0)
    """No end before this many new tokens."""
    max_new_tokens: int = Field(256, ge=1)
    """Output length limit in tokens."""
    stop: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Texts that end a candidate."""

    @model_validator(mode="after")
    def _fits_together(self) -> LawConfig:
        self.sampling_params()
        return self

    def sampling_params(self) -> SamplingParams:
        """Return the engine's form of the law."""
        values = self.model_dump()
        return SamplingParams(stop_strings=values.pop("stop"), **values)


class EngineConfig(DraftingConfig):
    """One decoder: a target model on one device, and how it drafts."""

    target: str = Field(min_length=1)
    """`smollm2` (the demo model), a local folder, a GGUF file, or a hub id."""
    numerics: Literal["auto", "bitwise", "fast"] = "auto"
    """`bitwise` makes a row's result independent of its batch; `auto` takes it on CPUs in float32, else `fast`."""
    device: str = "auto"
    """`auto`, `cpu` or `cuda`; Ray gives each worker a GPU of its own, among those of CUDA_VISIBLE_DEVICES."""
    dtype: Literal["auto", "float32", "float64", "bfloat16", "float16"] = "auto"
    """Weights' type; `auto` is float32 on CPUs and bfloat16 on GPUs."""
    max_batch: int = Field(32, ge=1)
    """Trajectories decoded together on one device."""
    kv_memory_gib: float = Field(3.0, gt=0)
    """Memory for keys and values."""
    max_context: int | None = Field(None, ge=2)
    """Positions a trajectory may reach; the model's own limit if not given."""
    prefill_chunk: int = Field(256, ge=1)
    """Prompt tokens computed in one pass beside the decoding trajectories."""
    threads: int | None = Field(None, ge=1)
    """CPU threads of one decoder; the cores of the machine shared out over its workers if not given."""
    trust_remote_code: bool = False
    """Run modelling code that comes with the model."""


class RunConfig(TaskConfig, PlacementConfig, StoreConfig):
    """Everything that fixes a run: what is solved, by which method, on what."""

    problems: Path
    """JSON lines, a problem a line: `id`, `prompt` or `messages`, optional `answer`, `domain`, `choices`, `tests`; `.gz` is read
    too."""
    engine: EngineConfig
    method: MethodConfig
    law: LawConfig = LawConfig()
    reward: RewardConfig | None = None
    budget: BudgetConfig = NO_LIMITS
    out: Path
    """Run folder; an existing one of the same identity is resumed."""
    seed: int = Field(0, ge=0)
    """Fixes every token of the run, with rejection verification their law alone."""
    template: Literal["auto", "raw", "chat"] = "auto"
    """How a prompt becomes tokens: `chat` uses the target's chat template, `raw` the text as it is, `auto` chat for
    `messages` and for plain prompts where the target has a template."""
    limit: int | None = Field(None, ge=1)
    """Take the first so many problems only."""
    workers: int | None = Field(None, ge=1)
    """Target verifiers that share the work: those of them begin that find room, the others join when they do. If not given,
    one a GPU (a node, without GPUs) that the cluster has now or gets later."""
    address: str | None = None
    """Ray cluster to connect to; without one a local cluster is started."""
    compare_plain: int = Field(0, ge=0)
    """Decode the first so many problems once more with and without drafts and print the speed; keyed verification must give
    the same tokens."""

    @model_validator(mode="after")
    def _can_score(self) -> RunConfig:
        if isinstance(self.method, StepwiseMethod) and self.reward is None:
            raise ConfigError(
                f"reward: {self.method.name} needs a reward model to score steps; give one, take reward.kind likelihood, "
                "which has no model, or use best_of_n"
            )
        if isinstance(self.method, ScoredMethod) and self.method.choice == "weighted" and self.reward is None:
            raise ConfigError(
                "choice: weighted needs a reward model; give one, or vote by rank of certainty with borda"
            )
        return self

    @model_validator(mode="after")
    def _can_begin_warm(self) -> RunConfig:
        check_warm_start(self, self.engine)
        return self

    @model_validator(mode="after")
    def _can_answer(self) -> RunConfig:
        if isinstance(self.method, BudgetForcing) and self.method.thinking_tokens >= self.law.max_new_tokens:
            raise ConfigError(
                f"thinking_tokens: {self.method.thinking_tokens} of {self.law.max_new_tokens} max_new_tokens leave no room "
                "for the answer; give fewer, or more of those"
            )
        return self

    def to_yaml(self) -> str:
        """Return the settings as a file that `load_config` reads, and that means the same in any working directory."""
        settings = self.model_copy(update={"problems": self.problems.absolute(), "out": self.out.absolute()})
        return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False)


def check_warm_start(store: StoreConfig, drafting: DraftingConfig) -> None:
    """Refuse a file of statistics that nobody would read.

    Raises:
        ConfigError: only stand shares statistics, and only where candidates have some in common.
    """
    if store.warm_start is None:
        return
    if drafting.drafter != "stand":
        raise ConfigError(f"warm_start: only stand reads it, not {drafting.drafter}; leave one of both out")
    if drafting.statistics_scope == "request":
        raise ConfigError(
            "warm_start: statistics_scope request shares nothing; take problem, task or run, or leave it out"
        )


def load_config(path: Path) -> Mapping[str, Any]:
    """Read a YAML file of settings; a method may be given as its bare name.

    Raises:
        ConfigError: the file cannot be read, or is not a mapping.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a readable YAML file") from None
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}:{place.line + 1 if place else 1}: not valid YAML") from None
    except ValueError as error:  # bytes that are no UTF-8, dates that do not exist
        raise ConfigError(f"{path}: {error}; save it as UTF-8, and put texts that look like dates in quotes") from None
    if not isinstance(values, Mapping):
        raise ConfigError(f"{path}: expected `name: value` lines")
    _check_names(path, values)
    method = values.get("method")
    return {**values, "method": {"name": method}} if isinstance(method, str) else values


def _check_names(path: Path, settings: Mapping[Any, Any]) -> None:
    """Refuse what YAML reads as a number, a date or a truth value."""
    for name, value in settings.items():
        if not isinstance(name, str):
            raise ConfigError(f"{path}: {name!r} is not the name of a setting; names are words such as `seed`")
        if isinstance(value, Mapping):
            _check_names(path, value)
