"""Outcome reward models: any sequence classifier of one class, or of two (the second one good).

Its logit is no probability; the score is its sigmoid, of two logits the softmax. A solution has one score, however many
steps it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification

from tts_orch.errors import TargetError
from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import RewardModel, Solution, StepScores
from tts_orch.rewards.model_loading import LoadedModel, load_model
from tts_orch.rewards.question import question_text
from tts_orch.rewards.segment_model import PromptForm, SegmentModel
from tts_orch.rewards.segments import Segment, Tokenizer, chat_frame, plain_tokens
from tts_orch.rewards.steps import cut_steps

__all__ = ["EncoderClassifier", "load", "prompt_form"]


def prompt_form(tokenizer: Tokenizer) -> PromptForm:
    """Return how solutions are shown: as the assistant's finished turn, or on a line behind the question without a template."""
    if tokenizer.chat_template:
        start, between, end = chat_frame(tokenizer, ["user", "assistant"], is_answered=True)
    else:
        start, end = (
            tuple(() if token_id is None else (token_id,))
            for token_id in (tokenizer.bos_token_id, tokenizer.eos_token_id)
        )
        between = plain_tokens(tokenizer, "\n")

    def form(problem: Problem, pieces: Sequence[str]) -> list[Segment]:
        prompt = (*start, *plain_tokens(tokenizer, question_text(problem)), *between)
        texts = (plain_tokens(tokenizer, piece) for piece in pieces)
        return [*(Segment(token_ids, is_read=False) for token_ids in (prompt, *texts)), Segment((), tail=end)]

    return form


class EncoderClassifier:
    """A `RewardModel` that reads question and solution as a pair of texts, in both directions, so nothing can be kept.

    Args:
        loaded: a sequence classifier.
        batch: solutions in a forward.
    """

    def __init__(self, loaded: LoadedModel, batch: int) -> None:
        self._loaded = loaded
        self._batch = batch

    @torch.inference_mode()
    def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Return the score of each solution; see `RewardModel`."""
        tokenizer = self._loaded.tokenizer
        scores: dict[int, StepScores] = {}
        pairs = [tokenizer(question_text(one.problem), one.text) for one in solutions]
        for i, pair in enumerate(pairs):
            if len(pair["input_ids"]) > self._loaded.max_context:
                scores[i] = StepScores(failure=f"its {len(pair['input_ids'])} tokens are too many for the reward model")
        readable = [i for i in range(len(pairs)) if i not in scores]
        for start in range(0, len(readable), self._batch):
            some = readable[start : start + self._batch]
            inputs = tokenizer.pad([pairs[i] for i in some], return_tensors="pt").to(self._loaded.model.device)
            for i, probability in zip(some, _probabilities(self._loaded.model(**inputs).logits).tolist(), strict=True):
                scores[i] = StepScores.checked([probability], len(pairs[i]["input_ids"]), len(pairs[i]["input_ids"]))
        return [scores[i] for i in range(len(solutions))]


def load(config: RewardConfig) -> RewardModel:
    """Load any sequence classifier.

    Raises:
        TargetError: as `load_model`, or it has other classes.
    """
    loaded = load_model(config, AutoModelForSequenceClassification)
    model: Any = loaded.model
    if model.config.num_labels > 2:
        raise TargetError(
            f"{loaded.name}: classifies into {model.config.num_labels} classes; give a model with one or two"
        )
    if not hasattr(model, "score"):  # decoders take the last token's state to `score`; encoders have other heads
        return EncoderClassifier(loaded, config.batch)

    def readout(hidden: torch.Tensor) -> torch.Tensor:
        return _probabilities(model.score(hidden))

    form = prompt_form(loaded.tokenizer)
    return SegmentModel(form, model.base_model, readout, config, loaded.max_context, cut=cut_steps)


def _probabilities(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.float()
    return logits.sigmoid()[:, 0] if logits.shape[-1] == 1 else logits.softmax(-1)[:, 1]
