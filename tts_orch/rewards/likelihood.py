"""How likely a model finds the tokens of a solution, as inputs of a head beside hidden states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Final

import torch

from tts_orch.rewards.padded_batch import Row
from tts_orch.rewards.prefix_memory import KeptSegment

__all__ = ["N_LIKELIHOODS", "Likelihood"]

N_LIKELIHOODS: Final = 4
"""Numbers for a segment: mean and least log-probability of its tokens, then sum and least one of all read so far."""
_ROWS: Final = 256


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Measures segments with the model that reads them.

    Attributes:
        layer: whose hidden states the head reads before this, counted from the embeddings; None where it reads none.
        output: from outputs of the last layer to logits, as the model has them.
    """

    layer: int | None
    output: Callable[[torch.Tensor], torch.Tensor]

    def of(self, rows: Sequence[Row], top: torch.Tensor) -> torch.Tensor:
        """Return `[n, N_LIKELIHOODS]` in float32 for the new segments of all rows.

        Segments that nobody reads, such as the prompt, have zeros of their own and leave what is so far as it is.

        Args:
            rows: solutions of a forward.
            top: `[B, N, hidden]` outputs of the last layer at their new tokens.
        """
        log_probs = iter(self._of_segments(rows, top))
        return torch.cat([_numbers(row.kept, list(islice(log_probs, len(row.new)))) for row in rows])

    def _of_segments(self, rows: Sequence[Row], top: torch.Tensor) -> list[torch.Tensor]:
        """Return the log-probabilities of each new segment's tokens, a zero for segments that nobody reads."""
        before = [states for row, its_top in zip(rows, top, strict=True) for states in _before(row, its_top)]
        segments = [segment for row in rows for segment in row.new]
        read = [number for number, segment in enumerate(segments) if segment.is_read]
        log_probs = [top.new_zeros(1, dtype=torch.float32)] * len(segments)
        if read:
            token_ids = [torch.tensor(segments[number].token_ids, device=top.device) for number in read]
            found = self._log_probs(torch.cat([before[number] for number in read]), torch.cat(token_ids))
            for number, of_segment in zip(read, found.split([len(ids) for ids in token_ids]), strict=True):
                log_probs[number] = of_segment
        return log_probs

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


def _numbers(kept: Sequence[KeptSegment], log_probs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return `[n, N_LIKELIHOODS]` of a row's new segments, which take up what is so far where the kept ones end."""
    before = kept[-1].likelihood if kept else None
    so_far = log_probs[0].new_zeros(2) if before is None else before[-2:]
    means, least, sums = (torch.stack(list(map(of, log_probs))) for of in (torch.mean, torch.min, torch.sum))
    totals = torch.cat([so_far[:1], sums]).cumsum(0)[1:]
    return torch.stack([means, least, totals, torch.cat([so_far[1:], least]).cummin(0).values[1:]], 1)
