"""How likely a model finds the tokens of a segment, as inputs of a head beside its hidden state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import torch
from torch import nn

from tts_orch.rewards.padded_batch import Row

__all__ = ["N_LIKELIHOODS", "Likelihood"]

N_LIKELIHOODS: Final = 2
"""Numbers for a segment: mean and least log-probability of its tokens."""
_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Measures segments with the model that reads them.

    Attributes:
        layer: whose hidden states the head reads beside this; 0 are the embeddings, -1 is the last layer's output.
        output: the model's output layer.
    """

    layer: int
    output: nn.Module

    def of(self, rows: Sequence[Row], top: torch.Tensor) -> torch.Tensor:
        """Return `[n, 2]` for the new segments of all rows, zeros for those that nobody reads.

        Args:
            rows: solutions of a forward.
            top: `[B, N, hidden]` outputs of the last layer at their new tokens.
        """
        segments = [segment for row in rows for segment in row.new]
        read = [number for number, segment in enumerate(segments) if segment.is_read]
        found = top.new_zeros(len(segments), N_LIKELIHOODS)
        if read:
            before = [states for row, its_top in zip(rows, top, strict=True) for states in _before(row, its_top)]
            token_ids = [torch.tensor(segments[number].token_ids, device=top.device) for number in read]
            log_probs = self._log_probs(torch.cat([before[number] for number in read]), torch.cat(token_ids))
            of_segments = log_probs.split([len(ids) for ids in token_ids])
            found[read] = torch.stack([torch.stack([one.mean(), one.min()]) for one in of_segments]).to(top.dtype)
        return found

    def _log_probs(self, states: torch.Tensor, token_ids: torch.Tensor) -> torch.Tensor:
        """Return `[n]` log-probabilities of tokens behind states, in portions: a row of logits is as wide as the vocabulary."""
        portions = zip(states.split(_ROWS), token_ids.split(_ROWS), strict=True)
        laws = ((self.output(some).float().log_softmax(-1), ids) for some, ids in portions)
        return torch.cat([law.gather(-1, ids[:, None])[:, 0] for law, ids in laws])


def _before(row: Row, top: torch.Tensor) -> list[torch.Tensor]:
    """Return for each new segment the states behind which its tokens were to be guessed; zeros before the very first."""
    last = row.kept[-1].top if row.kept else None
    behind = torch.cat([(top.new_zeros(top.shape[1]) if last is None else last)[None], top])
    return [behind[start:end] for start, end in pairwise([0, *row.ends])]
