"""From settings to a loaded reward model."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tts_orch.errors import TargetError
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards import callable as function_model
from tts_orch.rewards.base import RewardModel

__all__ = ["check_reward", "identity_of", "load_reward_model", "resolved"]


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


def check_reward(config: RewardConfig) -> None:
    """Refuse a reward model that is not there, before anything is loaded; hub ids are not asked for.

    Raises:
        ConfigError: there is no such function.
        TargetError: there is no such model.
    """
    if config.model is None or config.kind == "code_tests":
        return
    if config.kind == "callable" or (config.kind == "auto" and function_model.names_function(config.model)):
        function_model.load(config)
        return
    from tts_orch.engine.model_files import check_place  # functions do without

    try:
        check_place(config.model)
    except TargetError as error:
        raise TargetError(f"reward.model: {error}") from None


def identity_of(config: RewardConfig) -> str:
    """Return what the scores of resolved settings depend on, once they were loaded: a hash of the weights, or the name of the code."""
    if config.kind in ("callable", "code_tests"):
        return config.model or config.kind
    from tts_orch.engine.model_files import locate, weights_id

    return weights_id(locate(config.model or ""))
