"""A head whose weights are the means of others': the weak baseline of TAPS (arXiv 2603.27027)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import ConfigError

__all__ = ["averaged_head"]


def averaged_head(folders: Sequence[Path]) -> DraftHead:
    """Return the mean of heads of one shape that were trained for one target, to propose the same tokens.

    Raises:
        ConfigError: a folder has no head, or one for something else than the first.
    """
    heads = [read_head(folder) for folder in folders]
    first = heads[0]
    for folder, head in zip(folders, heads, strict=True):
        if _comparable(head.config) != _comparable(first.config):
            raise ConfigError(
                f"{folder}: a head of another shape, or for another target, than {folders[0]}; average heads that were "
                "trained alike"
            )
        if head.vocabulary != first.vocabulary:
            raise ConfigError(
                f"{folder}: a head with another draft vocabulary than {folders[0]}; average heads of the same tokens"
            )
    states = [head.state_dict() for head in heads]
    mean = {name: torch.stack([state[name].float() for state in states]).mean(0) for name in states[0]}
    trained_by = {"average_of": [dict(head.config.trained_by) for head in heads]}
    result = new_head(replace(first.config, trained_by=trained_by), first.vocabulary)
    result.load_state_dict(mean)
    return result


def _comparable(config: HeadConfig) -> HeadConfig:
    return replace(config, trained_by={})
