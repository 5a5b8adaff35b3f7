"""Skywork-o1-Open-PRM: a value at the line end behind every step.

Source: Skywork-o1-Open-PRM-Qwen-2.5-1.5B and -7B (model cards).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from transformers import Qwen2Model, Qwen2PreTrainedModel

from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, plain_tokens, start_tokens

__all__ = ["Qwen2WithValueHead", "load", "prompt_form"]


class Qwen2WithValueHead(Qwen2PreTrainedModel):
    """The checkpoint's layout: a decoder, and a linear head that gives the log odds of a good step."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        self.v_head = nn.ModuleDict({"summary": nn.Linear(config.hidden_size, 1)})
        self.post_init()  # type: ignore[no-untyped-call]

    def probabilities(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the probability of a good step, `[n, hidden]` to `[n]`."""
        log_odds: torch.Tensor = self.v_head["summary"](hidden)
        return log_odds.float().sigmoid()[:, 0]


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown: the question on a line, then each step with a line end."""
    start = start_tokens(tokenizer)
    line_end = plain_tokens(tokenizer, "\n")

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        question = Segment((*start, *plain_tokens(tokenizer, question_text(problem) + "\n")), is_read=False)
        return [question, *(Segment((*plain_tokens(tokenizer, step), *line_end)) for step in steps)]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load such a model; see `load_model`."""
    loaded = load_model(config, Qwen2WithValueHead)
    readout = loaded.model.probabilities
    return SegmentModel(prompt_form(loaded.tokenizer), loaded.backbone, readout, config, loaded.max_context)
