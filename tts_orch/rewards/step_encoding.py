"""The tokens of a solution's steps, each with a mark behind it that a process reward head reads the hidden state at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tts_orch.records import IntArray
from tts_orch.tasks.prompts import Tokenizer

__all__ = ["EncodedSteps", "encode_steps"]


class EncodedSteps(NamedTuple):
    """Tokens that follow the prompt's.

    Attributes:
        token_ids: `[n]`.
        ends: index of the last token of each step's mark.
    """

    token_ids: IntArray
    ends: tuple[int, ...]


def encode_steps(tokenizer: Tokenizer, steps: Sequence[str], mark: str) -> EncodedSteps:
    """Tokenise steps one by one, so that the tokens of a step depend on nothing behind it.

    Args:
        tokenizer: the base model's.
        steps: texts; white space and a mark at their ends do not count.
        mark: put behind every step, the last one too.
    """
    mark_ids = _token_ids(tokenizer, mark)
    token_ids: list[int] = []
    ends = []
    for step in steps:
        token_ids += _token_ids(tokenizer, step.rstrip().removesuffix(mark.strip()).rstrip()) + mark_ids
        ends.append(len(token_ids) - 1)
    return EncodedSteps(np.array(token_ids, np.int32), tuple(ends))


def _token_ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
