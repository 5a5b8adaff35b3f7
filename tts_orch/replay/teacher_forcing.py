"""The laws that finished trajectories were drawn from, and hidden states, by reading them once more as if they were prompts."""

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

__all__ = ["forced_features", "forced_laws"]

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


def forced_features(target: Target, prompt: IntArray, output: IntArray, layers: Sequence[int]) -> torch.Tensor:
    """Return the hidden states that decoding a trajectory had, equal as its laws are.

    Args:
        target: the loaded model.
        prompt: `[p]` tokens.
        output: `[n]` tokens.
        layers: as `Drafter.feature_layers` numbers them.

    Returns:
        `[p + n - 1, len(layers) * hidden_size]`, for all positions but the last.
    """
    tokens = np.concatenate([prompt, output])[:-1]
    pages = target.new_pages(-(-len(tokens) // PAGE), layers)
    for first in range(0, len(tokens), _ROWS):
        _forward(target, pages, tokens[first : first + _ROWS], first, has_logits=False)
    return pages.read_features(range(pages.n_pages), 0, len(tokens))


def _laws(target: Target, pages: KVPages, tokens: IntArray, start: int) -> Laws:
    """Return the law after each token, the first of which stands at position `start`."""
    statistics = [raw_statistics(torch.zeros(0, target.vocab_size))]  # of as many ids, where there are no tokens
    for first in range(0, len(tokens), _ROWS):
        logits = _forward(target, pages, tokens[first : first + _ROWS], start + first)
        statistics.append(raw_statistics(logits))
    ids = np.concatenate([of_part.top_ids for of_part in statistics])
    return ids, np.exp(np.concatenate([of_part.top_log_probs for of_part in statistics]))


def _forward(target: Target, pages: KVPages, tokens: IntArray, start: int, *, has_logits: bool = True) -> torch.Tensor:
    """Read tokens from position `start` on; position i is on page i // PAGE."""
    n_pages = -(-(start + len(tokens)) // PAGE)
    entry = Entry(tokens, start, range(n_pages), first_logit=0 if has_logits else len(tokens))
    return target.forward(pack([entry]), pages)
