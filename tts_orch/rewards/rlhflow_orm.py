"""RLHFlow's Llama-3.1-8B outcome reward models: question and whole solution in one turn, answered by a plus or a minus.

Source: RLHFlow/Llama3.1-8B-ORM-Deepseek-Data and -Mistral-Data, arXiv 2405.07863.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.question import question_text
from tts_orch.rewards.rlhflow_prm import load_dialogue
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, chat_frame, continued_tokens, plain_tokens
from tts_orch.rewards.steps import cut_steps

__all__ = ["load", "prompt_form"]


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown; the score is taken where the answer is predicted."""
    start, answer, _ = chat_frame(tokenizer, ["user", "assistant"])

    def form(problem: Problem, pieces: Sequence[str]) -> list[Segment]:
        question, (first, *later) = question_text(problem), pieces
        texts = (
            (*start, *plain_tokens(tokenizer, question)),
            continued_tokens(tokenizer, question, " " + first),
            *(plain_tokens(tokenizer, piece) for piece in later),
        )
        return [*(Segment(token_ids, is_read=False) for token_ids in texts), Segment((), tail=answer)]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load such a model; see `load_model`."""
    return load_dialogue(config, prompt_form, cut_steps)
