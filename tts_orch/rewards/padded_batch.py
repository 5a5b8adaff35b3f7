"""The inputs of one forward over solutions of different lengths, each behind what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np
import torch

from tts_orch.records import IntArray
from tts_orch.rewards.prefix_memory import KeptSegment
from tts_orch.rewards.segments import Segment, n_tokens_of

__all__ = ["PaddedBatch", "Row", "pad", "past_of"]

_TRUNK: Final = -1  # branch of the segments themselves; tails have the number of their segment
_PADDING: Final = -2


@dataclass(frozen=True, slots=True)
class Row:
    """One solution: segments that were read before, and those to read now, at least one."""

    kept: Sequence[KeptSegment]
    new: Sequence[Segment]

    @property
    def n_kept(self) -> int:
        """Tokens that were read before."""
        return sum(segment.n_tokens for segment in self.kept)

    @property
    def ends(self) -> list[int]:
        """For each new segment the column behind its last token; tails follow behind all of them."""
        return list(accumulate(len(segment.token_ids) for segment in self.new))

    @property
    def reads(self) -> list[int]:
        """For each new segment the column at which its score is taken."""
        tail_ends = accumulate((len(segment.tail) for segment in self.new), initial=self.ends[-1])
        next(tail_ends)
        places = zip(self.new, self.ends, tail_ends, strict=True)
        return [(tail_end if segment.tail else end) - 1 for segment, end, tail_end in places]

    def columns(self) -> IntArray:
        """Return `[N, 4]` of all new tokens: id, place behind the kept ones, branch, number of segment tokens it may see."""
        trunk = [i for segment in self.new for i in segment.token_ids]
        columns = [(token, at, _TRUNK, at + 1) for at, token in enumerate(trunk)]
        for branch, (segment, end) in enumerate(zip(self.new, self.ends, strict=True)):
            columns += [(token, end + at, branch, end) for at, token in enumerate(segment.tail)]
        return np.array(columns, np.int32)


@dataclass(frozen=True, slots=True)
class PaddedBatch:
    """The inputs of a forward: `n_past` padded kept tokens, then the new ones, padded behind.

    Attributes:
        token_ids: `[B, N]`.
        positions: `[B, N]` places in the solutions.
        visible: `[B, 1, N, n_past + N]` what each token attends to: whatever precedes it in its solution. A tail is seen
            by nobody else.
        n_past: columns of kept tokens.
    """

    token_ids: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    n_past: int


def pad(rows: Sequence[Row]) -> PaddedBatch:
    """Lay out the new tokens of several solutions."""
    n_kept = np.array([row.n_kept for row in rows])
    columns = np.full((len(rows), max(n_tokens_of(row.new) for row in rows), 4), (0, 0, _PADDING, 0), np.int64)
    for row, column in zip(rows, columns, strict=True):
        new = row.columns()
        column[: len(new)] = new
    token_ids, places, branches, limits = np.moveaxis(columns, 2, 0)
    at = np.arange(columns.shape[1])
    is_own = (branches[:, None] == branches[:, :, None]) & (at <= at[:, None])  # [B, N, N], the last is attended to
    is_trunk = (branches[:, None] == _TRUNK) & (at < limits[:, :, None])
    n_past = int(n_kept.max())
    is_kept = np.arange(n_past) >= (n_past - n_kept)[:, None, None]
    is_kept = np.broadcast_to(is_kept, (*token_ids.shape, n_past))
    visible = np.concatenate([is_kept, is_own | is_trunk], axis=2)
    return PaddedBatch(
        token_ids=torch.from_numpy(token_ids.copy()),
        positions=torch.from_numpy(places + n_kept[:, None]),
        visible=torch.from_numpy(visible[:, None]),
        n_past=n_past,
    )


def past_of(rows: Sequence[Row], n_past: int, layer: int) -> torch.Tensor:
    """Return the kept keys and values of a layer, `[2, B, heads, n_past, head_dim]`, padded in front."""
    example = next(row.kept[0].layers[layer] for row in rows if row.kept)
    padded = []
    for row in rows:
        padding = example.new_zeros(2, example.shape[1], n_past - row.n_kept, example.shape[3])
        padded.append(torch.cat([padding, *(segment.layers[layer] for segment in row.kept)], dim=2))
    return torch.stack(padded, dim=1)
