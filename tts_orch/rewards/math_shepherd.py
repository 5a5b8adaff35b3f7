"""Math-Shepherd: a mark behind every step, at which the language model says plus or minus.

Source: Math-Shepherd, arXiv 2312.08935 (peiyi9979/math-shepherd-mistral-7b-prm).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from transformers import AutoModelForCausalLM

from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, continued_tokens, plain_tokens, start_tokens
from tts_orch.rewards.word_readout import word_id, word_readout

__all__ = ["load", "prompt_form"]

_MARK: Final = "ки"
_GOOD, _BAD = "+", "-"
_NUMBERED: Final = re.compile(r"\s*step\s*\d", re.IGNORECASE)


def prompt_form(tokenizer: Tokenizer, mark: int) -> PromptForm:
    """Return how solutions are shown: question, then a line for each step, numbered as in the training data, and its mark."""
    start = start_tokens(tokenizer)

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        question = question_text(problem)
        prompt = Segment((*start, *plain_tokens(tokenizer, question)), is_read=False)
        lines = [step if _NUMBERED.match(step) else f"Step {i}: {step}" for i, step in enumerate(steps, start=1)]
        first = continued_tokens(tokenizer, question, " " + lines[0])
        later = (continued_tokens(tokenizer, _MARK, "\n" + line) for line in lines[1:])
        return [prompt, *(Segment((*token_ids, mark)) for token_ids in (first, *later))]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load such a model; see `load_model`."""
    loaded = load_model(config, AutoModelForCausalLM)
    mark, good, bad = (word_id(loaded.tokenizer, word, loaded.name) for word in (_MARK, _GOOD, _BAD))
    readout = word_readout(loaded.model, (good,), (bad,))
    form = prompt_form(loaded.tokenizer, mark)
    return SegmentModel(form, loaded.backbone, readout, config, loaded.max_context)
