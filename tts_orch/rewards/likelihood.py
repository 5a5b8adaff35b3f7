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
        return torch.cat([self._of_row(row, states) for row, states in zip(rows, top, strict=True)])

    def _of_row(self, row: Row, states: torch.Tensor) -> torch.Tensor:
        before = row.kept[-1].top if row.kept else None
        first = states.new_zeros(1, states.shape[1]) if before is None else before[None]
        behind = torch.cat([first, states])  # the state behind which each token was to be guessed
        found = states.new_zeros(len(row.new), N_LIKELIHOODS)
        for number, (segment, (start, end)) in enumerate(zip(row.new, pairwise([0, *row.ends]), strict=True)):
            if segment.is_read:
                log_probs = self._log_probs(behind[start:end], segment.token_ids)
                found[number] = torch.stack([log_probs.mean(), log_probs.min()])
        return found

    def _log_probs(self, states: torch.Tensor, token_ids: Sequence[int]) -> torch.Tensor:
        wanted = torch.tensor(token_ids, device=states.device)
        return self.output(states).float().log_softmax(-1).gather(-1, wanted[:, None])[:, 0].to(states.dtype)
