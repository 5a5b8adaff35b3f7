"""From settings to a loaded reward model."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import RewardModel

__all__ = ["identity_of", "load_reward_model", "resolved"]


def resolved(config: RewardConfig) -> RewardConfig:
    """Return the settings with the kind told from the model.

    Raises:
        ConfigError: the kind cannot be told.
        TargetError: there is no such model.
    """
    if config.kind != "auto":
        return config
    from tts_orch.rewards.detection import detect_kind  # loads torch, which functions and code tests do without

    return config.model_copy(update={"kind": detect_kind(config.model or "")})


def load_reward_model(config: RewardConfig) -> RewardModel:
    """Load what the settings name; every kind has a module of its name with a function `load`.

    Raises:
        ConfigError: impossible settings.
        TargetError: the model cannot be found or read, or is of another kind.
    """
    config = resolved(config)
    load: Callable[[RewardConfig], RewardModel] = importlib.import_module(f"tts_orch.rewards.{config.kind}").load
    return load(config)


def identity_of(config: RewardConfig) -> str:
    """Return what the scores of resolved settings depend on, once they were loaded: a hash of the weights, or the name of the code."""
    if config.kind in ("callable", "code_tests"):
        return config.model or config.kind
    from tts_orch.engine.model_files import locate, weights_id

    return weights_id(locate(config.model or ""))
