"""Qwen2.5-Math-PRM: a mark behind every step, classified as good or bad.

Source: Qwen2.5-Math-PRM-7B and -72B, arXiv 2501.07301; the same form serves Qwen2.5-Math-7B-PRM800K.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import nn
from transformers import Qwen2Model, Qwen2PreTrainedModel

from tts_orch.errors import TargetError
from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, chat_frame, plain_tokens

__all__ = ["Qwen2ForProcessRewards", "load", "prompt_form"]

_SYSTEM: Final = r"Please reason step by step, and put your final answer within \boxed{}."
_MARK: Final = "<extra_0>"
_GOOD: Final = 1


class Qwen2ForProcessRewards(Qwen2PreTrainedModel):
    """The checkpoint's layout: a decoder, and a head of two layers for the classes bad and good."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model = Qwen2Model(config)
        width = config.hidden_size
        self.score = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        self.post_init()  # type: ignore[no-untyped-call]

    def probabilities(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the probability of the class good, `[n, hidden]` to `[n]`."""
        logits: torch.Tensor = self.score(hidden)
        return logits.float().softmax(-1)[:, _GOOD]


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown: in the assistant's turn, every step followed by the mark, the last one too."""
    system = plain_tokens(tokenizer, _SYSTEM)
    start, between, answer = chat_frame(tokenizer, ["system", "user"])
    mark = tokenizer.convert_tokens_to_ids(_MARK)

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        question = plain_tokens(tokenizer, question_text(problem), _MARK)
        prompt = Segment((*start, *system, *between, *question, *answer), is_read=False)
        return [prompt, *(Segment((*plain_tokens(tokenizer, step, _MARK), mark)) for step in steps)]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load such a model; see `load_model`."""
    loaded = load_model(config, Qwen2ForProcessRewards)
    if _MARK not in loaded.tokenizer.get_vocab():
        raise TargetError(f"{loaded.name}: its tokenizer has no {_MARK}; give a Qwen2.5-Math-PRM, or another kind")
    readout = loaded.model.probabilities
    return SegmentModel(prompt_form(loaded.tokenizer), loaded.backbone, readout, config, loaded.max_context)
