"""A plain decoder of few lines that shares nothing with the engine but the integers of the noise.

The stock model reads the whole sequence for every token; transformers' own logits processors make the law; noise is
written out for the whole vocabulary; every stop rule is searched for anew in the whole output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    PreTrainedModel,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from tts_orch.records import DecodeRequest, FinishReason, SamplingParams, StepRule
from tts_orch.seeds import noise_words

Decode = Callable[[Sequence[int]], str]


@dataclass
class Outcome:
    """A finished trajectory; lists have one entry an output token."""

    tokens: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    log_probs: list[float] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    self_certainties: list[float] = field(default_factory=list)


def gumbel_row(seed: int, position: int, vocabulary_size: int) -> NDArray[np.float64]:
    """Return the noise of every id."""
    high, low = (noise_words(seed, position, np.arange(vocabulary_size), plane).astype(np.float64) for plane in (0, 1))
    uniform = (high + (low + 0.5) * 2.0**-32) * 2.0**-32
    return -np.log(-np.log1p(-uniform))


def processed_row(
    logits: torch.Tensor, tokens: Sequence[int], prompt_length: int, law: SamplingParams, stop_ids: Sequence[int]
) -> torch.Tensor:
    """Apply the law to the raw logits `[V]` after `tokens`; temperature 0 leaves the weights that the argmax is taken of."""
    input_ids = torch.tensor([list(tokens)])
    row = logits[None].clone()
    before = LogitsProcessorList()
    if law.logit_bias:
        before.append(SequenceBiasLogitsProcessor({(token,): bias for token, bias in law.logit_bias}))
    if law.repetition_penalty != 1:
        before.append(RepetitionPenaltyLogitsProcessor(law.repetition_penalty))
    row = before(input_ids, row)
    for token in set(tokens[prompt_length:]):  # not in transformers
        times = list(tokens[prompt_length:]).count(token)
        row[0, token] -= law.presence_penalty + law.frequency_penalty * times
    after = LogitsProcessorList()
    if law.min_new_tokens:
        after.append(MinNewTokensLengthLogitsProcessor(prompt_length, law.min_new_tokens, list(stop_ids)))
    if law.temperature not in (0, 1):
        after.append(TemperatureLogitsWarper(float(law.temperature)))
    if law.top_k:
        after.append(TopKLogitsWarper(law.top_k))
    if law.top_p < 1:
        after.append(TopPLogitsWarper(law.top_p))
    if law.min_p:
        after.append(MinPLogitsWarper(law.min_p))
    return after(input_ids, row)[0]


def decode_plainly(model: PreTrainedModel, request: DecodeRequest, eos_ids: Sequence[int], decode: Decode) -> Outcome:
    """Decode one request token by token."""
    law, outcome = request.law, Outcome()
    tokens = request.token_ids.tolist()
    stop_ids = [*eos_ids, *law.stop_ids]
    while outcome.reason is None:
        with torch.inference_mode():
            logits = model(torch.tensor([tokens])).logits[0, -1]
        weights = processed_row(logits, tokens, request.prompt_length, law, stop_ids).numpy()
        if law.temperature > 0:
            weights = weights + gumbel_row(request.seed, len(tokens), len(weights))
        token = int(np.argmax(weights))
        tokens.append(token)
        _describe(outcome, logits.double().log_softmax(-1), token)
        output = tokens[request.prompt_length :]
        if token in stop_ids:
            outcome.reason = FinishReason.EOS
        elif any(stop in decode(output) for stop in law.stop_strings):
            outcome.reason = FinishReason.STOP_STRING
        elif len(output) == law.max_new_tokens:
            outcome.reason = FinishReason.LENGTH
        elif request.step is not None:
            outcome.reason = _step_end(request, request.step, tokens, outcome, decode)
    return outcome


def _step_end(
    request: DecodeRequest, rule: StepRule, tokens: Sequence[int], outcome: Outcome, decode: Decode
) -> FinishReason | None:
    start = len(request.token_ids) if request.step_start is None else request.step_start
    step, confidences = tokens[start:], [*request.confidences, *outcome.confidences]
    cut = rule.confidence
    if cut and len(step) >= cut.window and np.mean(confidences[-cut.window :]) < cut.least:
        return FinishReason.LOW_CONFIDENCE
    n_delimiters = [sum(n_occurrences(decode(part), text) for text in rule.delimiters) for part in (step[:-1], step)]
    if len(step) >= rule.min_tokens and n_delimiters[0] < n_delimiters[1]:
        return FinishReason.STEP
    return FinishReason.STEP_LENGTH if len(step) == rule.max_tokens else None


def n_occurrences(text: str, part: str) -> int:
    """Return at how many places a text has a part; they may overlap."""
    return sum(text.startswith(part, place) for place in range(len(text)))


def _describe(outcome: Outcome, log_p: torch.Tensor, token: int) -> None:
    outcome.tokens.append(token)
    outcome.log_probs.append(float(log_p[token]))
    outcome.confidences.append(-float(log_p.sort(descending=True).values[:20].mean()))
    outcome.self_certainties.append(-float((log_p + np.log(len(log_p))).mean()))
