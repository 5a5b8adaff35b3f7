"""RLHFlow's Llama-3.1-8B process reward models: a dialogue in which every step is answered by a plus or a minus.

Source: RLHFlow/Llama3.1-8B-PRM-Deepseek-Data and -Mistral-Data, arXiv 2405.07863 and 2312.08935.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from transformers import AutoModelForCausalLM

from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import Cut, PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, chat_frame, continued_tokens, plain_tokens
from tts_orch.rewards.steps import split_steps
from tts_orch.rewards.word_readout import word_id, word_readout

__all__ = ["load", "load_dialogue", "prompt_form"]

_GOOD, _BAD = "+", "-"


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown: a user's turn for each step, the question in the first, answered by a plus before the next.

    The score is taken where the answer is predicted, so the last answer is not read.
    """
    start, answer, next_turn, _ = chat_frame(tokenizer, ["user", "assistant", "user"])
    good = plain_tokens(tokenizer, _GOOD)

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        question = question_text(problem)
        prompt = Segment((*start, *plain_tokens(tokenizer, question)), is_read=False)
        first = Segment((*continued_tokens(tokenizer, question, " " + steps[0]), *answer))
        later = (Segment((*good, *next_turn, *plain_tokens(tokenizer, step), *answer)) for step in steps[1:])
        return [prompt, first, *later]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load such a model; see `load_model`."""
    return load_dialogue(config, prompt_form)


def load_dialogue(
    config: RewardConfig, form: Callable[[Tokenizer], PromptForm], cut: Cut = split_steps
) -> SegmentModel:
    """Load a model that answers by a plus or a minus.

    Args:
        config: settings of the reward model.
        form: from its tokenizer to how solutions are shown.
        cut: where the pieces of a solution are.
    """
    loaded = load_model(config, AutoModelForCausalLM)
    good, bad = (word_id(loaded.tokenizer, word, loaded.name) for word in (_GOOD, _BAD))
    readout = word_readout(loaded.model, (good,), (bad,))
    return SegmentModel(form(loaded.tokenizer), loaded.backbone, readout, config, loaded.max_context, cut)
