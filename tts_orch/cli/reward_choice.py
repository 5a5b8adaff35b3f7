"""Whether a run has a use for its reward model, and whether there is one of that name: looked at before any work begins."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from tts_orch.config import RunConfig
from tts_orch.rewards.registry import check_reward

__all__ = ["with_useful_reward"]

logger = logging.getLogger(__name__)


def with_useful_reward(config: RunConfig) -> RunConfig:
    """Return the settings without a reward model that the method would never ask, after a warning.

    Raises:
        UserError: there is no such reward model.
    """
    if config.reward is None:
        return config
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # where Ray's workers look for a function too
    check_reward(config.reward)
    if config.method.uses_rewards:
        return config
    logger.warning("reward: %s asks no reward model, so none is loaded", config.method.name)
    return config.model_copy(update={"reward": None})
