"""`PackedBatch`: the rows of one forward pass, all draft trees and prefill chunks of all trajectories, without padding.

Every row is one token of one trajectory. Keys and values live in pages of 64 consecutive absolute positions; draft nodes
get pages of their own and are moved when they are committed. A row sees the committed keys at positions below its
`limit`, in order, and then its ancestors among the draft nodes, in order of depth, itself last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.records import IntArray

__all__ = ["PAGE", "PackedBatch"]

PAGE = 64
"""Positions a page; also the block in which attention is reduced, so that its result is canonical."""


@dataclass(frozen=True, slots=True)
class PackedBatch:
    """One forward pass. `R` rows, `E` entries (trajectories), rows of an entry are contiguous.

    Attributes:
        token_ids: `[R]`.
        positions: `[R]` absolute positions (a draft node's is its depth below the root's).
        entry_start: `[E + 1]` first row of each entry.
        page_table: `[E, P]` pages of the committed positions in order, -1 beyond the last.
        limit: `[R]` committed keys a row sees: positions `0 .. limit - 1`. Rows that are sure to be committed (prefill,
            the root) have their keys written before attention and count themselves: `limit = position + 1`.
        write_page, write_offset: `[R]` where the row's key and value go.
        ancestor_start: `[R + 1]` and
        ancestor_page, ancestor_offset: `[A]` draft keys a row sees after the committed ones, at positions `limit`,
            `limit + 1`, ..., the row itself last; empty for rows that are sure to be committed.
        logit_rows: `[L]` rows whose logits are wanted, ascending.
    """

    token_ids: IntArray
    positions: IntArray
    entry_start: IntArray
    page_table: IntArray
    limit: IntArray
    write_page: IntArray
    write_offset: IntArray
    ancestor_start: IntArray
    ancestor_page: IntArray
    ancestor_offset: IntArray
    logit_rows: NDArray[np.int64]

    @property
    def n_rows(self) -> int:
        """Rows of the pass."""
        return len(self.token_ids)
