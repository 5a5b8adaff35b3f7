"""A language model as judge: asked after every step whether the solution is right so far, its score is P(yes).

Source: LLM as judge, arXiv 2306.05685; a reward model that answers yes or no, arXiv 2408.15240.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from transformers import AutoModelForCausalLM

from tts_orch.errors import TargetError
from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.model_loading import load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, chat_frame, plain_tokens, start_tokens
from tts_orch.rewards.word_readout import word_readout

__all__ = ["load", "prompt_form"]

_TASK: Final = "Check the solution of a problem, step by step.\n\nProblem:\n"
_SOLUTION: Final = "\n\nSolution so far:\n\n"
_STEP_END: Final = "\n\n"
_VERDICT: Final = "Is the solution correct so far? Answer with Yes or No."
_YES: Final = ("Yes", "yes", " Yes", " yes")
_NO: Final = ("No", "no", " No", " no")


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown: problem and steps, and at the end of every step the request for a verdict.

    The request is read on the side: the next step follows the step, so steps are read once.
    """
    if tokenizer.chat_template:
        start, answer = chat_frame(tokenizer, ["user"])
    else:
        start = start_tokens(tokenizer)
        answer = plain_tokens(tokenizer, "\nAnswer:")
    request = (*plain_tokens(tokenizer, _VERDICT), *answer)

    def form(problem: Problem, steps: Sequence[str]) -> list[Segment]:
        prompt = plain_tokens(tokenizer, _TASK + question_text(problem) + _SOLUTION)
        shown = (plain_tokens(tokenizer, step + _STEP_END) for step in steps)
        return [Segment((*start, *prompt), is_read=False), *(Segment(one, tail=request) for one in shown)]

    return form


def load(config: RewardConfig) -> SegmentModel:
    """Load a causal language model as judge.

    Raises:
        TargetError: as `load_model`, or it cannot say yes or no in one token.
    """
    loaded = load_model(config, AutoModelForCausalLM)
    yes, no = (_single_tokens(loaded.tokenizer, words) for words in (_YES, _NO))
    if not yes or not no:
        raise TargetError(f"{loaded.name}: its tokenizer has no token for yes or no; give another judge")
    readout = word_readout(loaded.model, yes, no)
    return SegmentModel(prompt_form(loaded.tokenizer), loaded.backbone, readout, config, loaded.max_context)


def _single_tokens(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[int, ...]:
    encoded = (plain_tokens(tokenizer, word) for word in words)
    return tuple(sorted({token_ids[0] for token_ids in encoded if len(token_ids) == 1}))
