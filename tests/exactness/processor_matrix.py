"""Sampling laws with every combination of logits processors on and off."""

from __future__ import annotations

import itertools

from tts_orch.records import SamplingParams

__all__ = ["PROCESSOR_MATRIX"]

_COMBINATIONS = itertools.product(
    (0.0, 0.6, 1.0),  # temperature
    (0, 1, 12),  # top_k
    (1.0, 0.9),  # top_p
    (0.0, 0.1),  # min_p
    ((1.0, 0.0, 0.0), (1.4, 0.0, 0.0), (0.8, 0.7, 0.2)),  # repetition, presence, frequency
    (0, 4),  # min_new_tokens
)

PROCESSOR_MATRIX = [
    SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        min_new_tokens=minimum,
        logit_bias=((3, 2.0), (9, -1.0)) if case % 5 == 0 else (),  # meets all the others in turn
    )
    for case, (temperature, top_k, top_p, min_p, (repetition, presence, frequency), minimum) in enumerate(_COMBINATIONS)
]
