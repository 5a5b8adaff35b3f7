"""`PackedBatch`: the rows of one forward pass, all draft trees and prefill chunks of all trajectories, without padding.

Every row is one token of one trajectory. Keys and values live in pages of 64 consecutive absolute positions; draft nodes
get pages of their own and are moved when they are committed. A row sees the committed keys at positions below its
`limit`, in order, and then its ancestors among the draft nodes, in order of depth, itself last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import IntArray

__all__ = ["PAGE", "Entry", "PackedBatch", "draft_place", "pack"]

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


@dataclass(frozen=True, slots=True)
class Entry:
    """One trajectory's share of a pass: a run of committed tokens, then a draft tree on the last of them.

    Attributes:
        token_ids: `[c]` committed tokens at positions `start .. start + c - 1`; their keys are written for good.
        start: absolute position of the first.
        pages: committed pages, enough for these positions.
        tree: draft tree whose root is the last of `token_ids`, or None for a prefill chunk.
        draft_pages: pages for its nodes; node `i > 0` goes to place `i - 1` of them.
        first_logit: first committed token whose logits are wanted (an index into `token_ids`); the tree's nodes always are.
    """

    token_ids: IntArray
    start: int
    pages: Sequence[int]
    tree: DraftTree | None = None
    draft_pages: Sequence[int] = ()
    first_logit: int = 0

    @property
    def n_drafts(self) -> int:
        """Draft nodes below the root."""
        return self.tree.n_nodes - 1 if self.tree is not None else 0


def draft_place(draft_pages: IntArray, nodes: NDArray[np.integer]) -> tuple[IntArray, IntArray]:
    """Return (page, offset) of draft nodes (1 = first below the root)."""
    places = np.asarray(nodes, np.int32) - 1
    return draft_pages[places // PAGE], places % PAGE


def pack(entries: Sequence[Entry]) -> PackedBatch:
    """Lay out the rows of one forward pass, entry by entry: committed tokens first, then the draft nodes in tree order."""
    rows = [_rows(entry) for entry in entries]
    sizes = [len(r.token_ids) for r in rows]
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    wanted = [
        np.arange(start + entry.first_logit, end)
        for start, end, entry in zip(starts[:-1], starts[1:], entries, strict=True)
    ]
    page_table = np.full((len(entries), max(len(entry.pages) for entry in entries)), -1, np.int32)
    for i, entry in enumerate(entries):
        page_table[i, : len(entry.pages)] = entry.pages
    return PackedBatch(
        token_ids=np.concatenate([r.token_ids for r in rows]),
        positions=np.concatenate([r.positions for r in rows]),
        entry_start=starts,
        page_table=page_table,
        limit=np.concatenate([r.limit for r in rows]),
        write_page=np.concatenate([r.write_page for r in rows]),
        write_offset=np.concatenate([r.write_offset for r in rows]),
        ancestor_start=np.concatenate([[0], np.cumsum(np.concatenate([r.n_ancestors for r in rows]))]).astype(np.int32),
        ancestor_page=np.concatenate([r.ancestor_page for r in rows]),
        ancestor_offset=np.concatenate([r.ancestor_offset for r in rows]),
        logit_rows=np.concatenate(wanted).astype(np.int64),
    )


class _Rows(NamedTuple):
    token_ids: IntArray
    positions: IntArray
    limit: IntArray
    write_page: IntArray
    write_offset: IntArray
    n_ancestors: IntArray
    ancestor_page: IntArray
    ancestor_offset: IntArray


def _rows(entry: Entry) -> _Rows:
    n_committed, n_drafts = len(entry.token_ids), entry.n_drafts
    committed = np.arange(entry.start, entry.start + n_committed, dtype=np.int32)
    page = np.asarray(entry.pages, np.int32)[committed // PAGE]
    if entry.tree is None or n_drafts == 0:
        none = np.zeros(0, np.int32)
        n_ancestors = np.zeros(n_committed, np.int32)
        return _Rows(entry.token_ids, committed, committed + 1, page, committed % PAGE, n_ancestors, none, none)
    tree, root_position = entry.tree, int(committed[-1])
    paths = [tree.path(node) for node in range(1, tree.n_nodes)]
    draft_pages = np.asarray(entry.draft_pages, np.int32)
    draft_page, draft_offset = draft_place(draft_pages, np.arange(1, tree.n_nodes))
    ancestor_page, ancestor_offset = draft_place(draft_pages, np.concatenate(paths))
    return _Rows(
        token_ids=np.concatenate([entry.token_ids, tree.token[1:]]),
        positions=np.concatenate([committed, root_position + tree.depth[1:]]),
        limit=np.concatenate([committed + 1, np.full(n_drafts, root_position + 1, np.int32)]),
        write_page=np.concatenate([page, draft_page]),
        write_offset=np.concatenate([committed % PAGE, draft_offset]),
        n_ancestors=np.concatenate([np.zeros(n_committed, np.int32), tree.depth[1:]]),
        ancestor_page=ancestor_page,
        ancestor_offset=ancestor_offset,
    )
