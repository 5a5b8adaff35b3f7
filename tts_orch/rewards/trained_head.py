"""Serves a process reward head of `tts-orch reward train`, on the hidden states of the model that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

import torch
from transformers import AutoModel, AutoModelForCausalLM, PreTrainedModel

from tts_orch.engine.model_files import locate
from tts_orch.engine.output_layer import OutputLayer
from tts_orch.errors import ConfigError
from tts_orch.records import Problem
from tts_orch.reward_config import Reads, RewardConfig
from tts_orch.rewards.cut_model import checked_layer, cut_to_layer
from tts_orch.rewards.likelihood import Likelihood
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.process_head import HeadConfig, read_head
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer
from tts_orch.rewards.step_encoding import encode_steps
from tts_orch.tasks.prompts import render

__all__ = ["load", "prompt_form", "readable_model"]

_BLOCK: Final = 32  # prompts are read in blocks, so that worked examples that problems share are read once


def prompt_form(tokenizer: Tokenizer, head: HeadConfig) -> PromptForm:
    """Return how solutions are shown: behind the prompt as the target sees it, with the mark behind every step."""

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        prompt = render(problem, tokenizer, head.template)
        encoded = encode_steps(tokenizer, steps, head.delimiters[0])
        starts = (0, *(end + 1 for end in encoded.ends[:-1]))
        token_ids = encoded.token_ids.tolist()
        shown = (tuple(token_ids[start : end + 1]) for start, end in zip(starts, encoded.ends, strict=True))
        blocks = (prompt[start : start + _BLOCK].tolist() for start in range(0, len(prompt), _BLOCK))
        return [*(Segment(tuple(block), is_read=False) for block in blocks), *map(Segment, shown)]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load a head and the model that it was trained on.

    Raises:
        ConfigError: there is no head, or its model has other weights here.
        TargetError: as `load_model`.
    """
    head_config, head = read_head(Path(locate(config.model or "")))
    if config.dtype == "auto":
        config = config.model_copy(update={"dtype": head_config.dtype})
    architecture = AutoModel if head_config.reads == "hidden_state" else AutoModelForCausalLM
    loaded = load_model(config, architecture, head_config.base_model)
    if loaded.weights_id != head_config.base_weights:
        raise ConfigError(
            f"{config.model}: the head was trained on other weights than {head_config.base_model} has here; "
            "train it anew with `tts-orch reward train`"
        )
    if config.delimiters is None:
        config = config.model_copy(update={"delimiters": head_config.delimiters})
    backbone, likelihood = readable_model(loaded.model, head_config.layer, head_config.reads)
    head = head.to(backbone.device)

    def readout(hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = head(hidden)
        return logits.sigmoid()

    form = prompt_form(loaded.tokenizer, head_config)
    return SegmentModel(form, backbone, readout, config, loaded.max_context, likelihood=likelihood)


def readable_model(model: PreTrainedModel, layer: int, reads: Reads) -> tuple[PreTrainedModel, Likelihood | None]:
    """Return a base model as a head reads it, with what measures likelihoods where it reads them.

    Args:
        model: with its output layer where likelihoods are read; it is changed.
        layer: whose hidden states are read, if any are.
        reads: what is read.

    Raises:
        ConfigError: it has no such layer.
        TargetError: it has no output layer that its likelihoods could be read from.
    """
    backbone = cast(PreTrainedModel, model.base_model)
    if reads == "hidden_state":
        return cut_to_layer(backbone, layer), None
    layer_read = checked_layer(backbone, layer) if reads == "both" else None
    return backbone, Likelihood(layer_read, OutputLayer.checked(model, "the base model"))
