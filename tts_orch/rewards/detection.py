"""Tells what kind of reward model a model is by its configuration and its name, where that is sure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, get_args

from transformers import PretrainedConfig

from tts_orch.engine.model_files import locate
from tts_orch.errors import ConfigError, TargetError, first_line
from tts_orch.reward_config import RewardKind
from tts_orch.rewards.callable import names_function

__all__ = ["detect_kind"]

_ARCHITECTURES: Final[Mapping[str, RewardKind]] = {
    r"Qwen2ForProcessRewardModel": "qwen_math_prm",
    r"Qwen2ForPrmModel": "skywork_prm",
    r"\w+ForSequenceClassification": "classifier",
}
_NAMES: Final[Mapping[str, RewardKind]] = {
    r"qwen2\.5-math.*prm": "qwen_math_prm",
    r"skywork-o1-open-prm": "skywork_prm",
    r"llama3\.1-8b-prm": "rlhflow_prm",
    r"llama3\.1-8b-orm": "rlhflow_orm",
    r"math-shepherd-mistral-7b-prm": "math_shepherd",
}


def detect_kind(model: str) -> RewardKind:
    """Return the kind of a reward model.

    Args:
        model: as in `RewardConfig.model`.

    Raises:
        ConfigError: it cannot be told.
        TargetError: there is no such model.
    """
    if names_function(model):
        return "callable"
    configuration = _configuration(model)
    if "process reward head" in configuration.get("format", ""):
        return "trained_head"
    for pattern, kind in _ARCHITECTURES.items():
        if any(re.fullmatch(pattern, name) for name in configuration.get("architectures") or ()):
            return kind
    for pattern, kind in _NAMES.items():
        if re.search(pattern, model, re.IGNORECASE):
            return kind
    raise ConfigError(f"reward.kind: not sure what {model} is; give one of {', '.join(get_args(RewardKind))}")


def _configuration(model: str) -> Mapping[str, Any]:
    place = locate(model)
    try:
        configuration, _ = PretrainedConfig.get_config_dict(place)
    except (OSError, ValueError) as error:
        raise TargetError(
            f"{model}: no reward model to read ({first_line(error)}); give a folder or a hub id"
        ) from None
    return dict(configuration)
