"""Loads reward models from the same names that targets have: the demo model, folders, GGUF files, hub ids."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, cast

import torch
from transformers import AutoTokenizer, PreTrainedModel

from tts_orch.engine.model_files import locate, weights_id
from tts_orch.engine.model_options import context_limit, device_named, dtype_named
from tts_orch.engine.threads import set_threads
from tts_orch.errors import TargetError, first_line
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.segments import Tokenizer

__all__ = ["LoadedModel", "load_model", "readable_positions"]


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model with all its weights, in evaluation mode on its device.

    Attributes:
        model: an instance of the asked-for architecture.
        tokenizer: its own.
        name: how messages call it.
        weights_id: identity of its weights.
        max_context: tokens that it reads at most.
    """

    model: Any
    tokenizer: Tokenizer
    name: str
    weights_id: str
    max_context: int

    @property
    def backbone(self) -> PreTrainedModel:
        """The model without its output layer."""
        return cast(PreTrainedModel, self.model.base_model)


def load_model(config: RewardConfig, architecture: Any, name: str | None = None) -> LoadedModel:
    """Load a reward model.

    Args:
        config: device, type of the weights, limit; and the model's name where `name` is not given.
        architecture: class of the model, or an `Auto` class; every weight it has must be in the files.
        name: of the model.

    Raises:
        ConfigError: there is no such device.
        TargetError: it cannot be found or read, or has not the weights of such a reward model.
    """
    name = name or config.model or ""
    place = locate(name)
    device = device_named(config.device)
    if device.type == "cpu":
        set_threads(config.threads or max(1, (os.cpu_count() or 1) // 2))
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
        model, found = architecture.from_pretrained(
            place, dtype=dtype_named(config.dtype, device), output_loading_info=True
        )
        model = torch.nn.Module.to(model.eval().requires_grad_(False), device)
    except Exception as error:  # each file format and architecture has its own ways to fail
        raise TargetError(
            f"{name}: cannot load the reward model ({first_line(error)}); give another model or kind"
        ) from None
    if found["missing_keys"]:
        raise TargetError(
            f"{name}: no weights for {min(found['missing_keys'])}, so it is no reward model of this kind; "
            "give another model or kind"
        )
    limit = readable_positions(model.config.get_text_config())
    return LoadedModel(model, tokenizer, name, weights_id(place), min(config.max_context or limit, limit))


def readable_positions(text: Any) -> int:
    """Return the positions up to which every layer sees everything: masks are made without sliding windows."""
    return min(context_limit(text), getattr(text, "sliding_window", None) or 2**20)
