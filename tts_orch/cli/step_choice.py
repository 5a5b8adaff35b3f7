"""Where steps end for a search and for its reward model, looked at before any work begins."""

from __future__ import annotations

import logging
from typing import Final

from tts_orch.config import RunConfig
from tts_orch.method_config import StepwiseMethod
from tts_orch.reward_config import OWN_KINDS
from tts_orch.rewards.base import DEFAULT_DELIMITERS

__all__ = ["check_steps"]

logger = logging.getLogger(__name__)

_CUTS_NO_STEPS: Final = ("classifier", "code_tests", "rlhflow_orm", *OWN_KINDS)


def check_steps(config: RunConfig) -> None:
    """Say so where the reward model may take other pieces of a solution for steps than the search does."""
    method, reward = config.method, config.reward
    if not isinstance(method, StepwiseMethod) or reward is None or reward.kind in _CUTS_NO_STEPS:
        return
    if reward.delimiters is None and method.delimiters != DEFAULT_DELIMITERS:
        logger.warning(
            "reward.delimiters: steps of the search end at %s, those of the reward model at an empty line, or as its head "
            "was trained; give both the same",
            " or ".join(map(repr, method.delimiters)),
        )
