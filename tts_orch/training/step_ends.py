"""Where in its tokens the steps of a solution end."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from tts_orch.records import Candidate
from tts_orch.rewards.steps import split_steps

__all__ = ["Decode", "step_ends"]

Decode = Callable[[Sequence[int]], str]

_NEXT_STEP: Final = "x"  # a step is complete when what follows it would belong to the next one


def step_ends(candidate: Candidate, decode: Decode, delimiters: Sequence[str]) -> list[int]:
    """Return after how many tokens each step is complete; the last one is where the solution ends.

    A token belongs whole to the step whose delimiter it completes.

    Args:
        candidate: a whole solution.
        decode: token ids to text, special tokens left out.
        delimiters: texts that end a step.

    Returns:
        As many ends as `split_steps` finds steps in the candidate's text, rising.
    """

    def complete_steps(n_tokens: int) -> int:
        return len(split_steps(decode(candidate.token_ids[:n_tokens]) + _NEXT_STEP, delimiters)) - 1

    n_steps = len(split_steps(candidate.text, delimiters))
    lengths = range(candidate.n_tokens)
    inner = [bisect_left(lengths, number, key=complete_steps) for number in range(1, n_steps)]
    return [*inner, candidate.n_tokens] if n_steps else []
