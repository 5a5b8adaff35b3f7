"""The laws that finished trajectories were drawn from, computed again by reading them as if they were prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import torch

from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.laws import raw_statistics
from tts_orch.engine.packing import PAGE, Entry, pack
from tts_orch.engine.target import Target
from tts_orch.records import IntArray
from tts_orch.replay.recording import Laws

__all__ = ["forced_laws"]

_ROWS: Final = 256
"""Rows a pass."""


def forced_laws(target: Target, prompt: IntArray, outputs: Sequence[IntArray]) -> Iterator[Laws]:
    """Yield raw laws; with bitwise numerics they are the very ones that decoding computed, elsewhere equal up to rounding.

    Args:
        target: the loaded model.
        prompt: `[p]` tokens.
        outputs: `[n]` tokens of each trajectory.

    Yields:
        First the laws `[p - 1, k]` after the prompt's tokens but the last, then the laws `[n, k]` of each output.
    """
    longest = len(prompt) + max(map(len, outputs), default=0)
    pages = target.new_pages(-(-longest // PAGE))
    yield _laws(target, pages, prompt[:-1], 0)
    for output in outputs:  # each writes over the keys of the one before, which no row sees beyond its own position
        yield _laws(target, pages, np.concatenate([prompt[-1:], output[:-1]]), len(prompt) - 1)


def _laws(target: Target, pages: KVPages, tokens: IntArray, start: int) -> Laws:
    """Return the law after each token, the first of which stands at position `start`."""
    statistics = [raw_statistics(torch.zeros(0, target.vocab_size))]  # of as many ids, where there are no tokens
    for first in range(0, len(tokens), _ROWS):
        part = tokens[first : first + _ROWS]
        n_pages = -(-(start + first + len(part)) // PAGE)
        logits = target.forward(pack([Entry(part, start + first, range(n_pages))]), pages)
        statistics.append(raw_statistics(logits))
    ids = np.concatenate([of_part.top_ids for of_part in statistics])
    return ids, np.exp(np.concatenate([of_part.top_log_probs for of_part in statistics]))
