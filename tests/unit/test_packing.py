"""`pack` against walking every row's prefix token by token."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies import draft_trees
from tts_orch.engine.packing import PAGE, Entry, PackedBatch, draft_place, pack

_N_PAGES = 4


@st.composite
def _entries(draw: st.DrawFn) -> list[Entry]:
    """Prefill chunks and trees at any position, each with pages of its own."""
    entries = []
    for i in range(draw(st.integers(1, 4))):
        pages = draw(st.permutations(range(i * 6, i * 6 + 6)))
        start = draw(st.integers(0, 2 * PAGE))
        if draw(st.booleans()):
            n = draw(st.integers(1, PAGE))
            tokens = np.arange(100 * i, 100 * i + n, dtype=np.int32)
            entries.append(Entry(tokens, start, pages[:_N_PAGES], first_logit=draw(st.integers(0, n))))
        else:
            tree = draw(draft_trees())
            entries.append(Entry(tree.token[:1], start, pages[:_N_PAGES], tree, pages[_N_PAGES:]))
    return entries


def _visible(batch: PackedBatch, row: int) -> list[tuple[int, int]]:
    """Return the (page, offset) a row reads, in order."""
    entry = int(np.searchsorted(batch.entry_start, row, side="right")) - 1
    positions = range(batch.limit[row])
    committed = [(int(batch.page_table[entry, p // PAGE]), p % PAGE) for p in positions]
    ancestors = slice(batch.ancestor_start[row], batch.ancestor_start[row + 1])
    drafts = zip(batch.ancestor_page[ancestors].tolist(), batch.ancestor_offset[ancestors].tolist(), strict=True)
    return committed + list(drafts)


@settings(max_examples=100, deadline=None)
@given(_entries())
def test_every_row_sees_its_prefix_in_order_and_itself_last(entries: list[Entry]) -> None:
    batch, row = pack(entries), 0
    for entry in entries:
        written: dict[tuple[int, int], int] = {}  # where each row of this entry writes
        first = row
        for i, token in enumerate(entry.token_ids.tolist()):
            position = entry.start + i
            assert (batch.token_ids[row], batch.positions[row]) == (token, position)
            assert _visible(batch, row) == [(entry.pages[p // PAGE], p % PAGE) for p in range(position + 1)]
            written[int(batch.write_page[row]), int(batch.write_offset[row])] = row
            row += 1
        for node in range(1, entry.n_drafts + 1):
            assert entry.tree is not None
            assert batch.token_ids[row] == entry.tree.token[node]
            assert batch.positions[row] == entry.start + entry.tree.depth[node]
            written[int(batch.write_page[row]), int(batch.write_offset[row])] = row
            path = [written[place] - first for place in _visible(batch, row)[batch.limit[row] :]]
            assert path == entry.tree.path(node)
            assert batch.limit[row] == entry.start + 1
            row += 1
        assert len(written) == row - first, "two rows write to one place"
    assert row == batch.n_rows == batch.entry_start[-1]


@settings(max_examples=50, deadline=None)
@given(_entries())
def test_logits_are_asked_for_entry_by_entry(entries: list[Entry]) -> None:
    batch = pack(entries)
    wanted = [
        int(start) + i
        for start, entry in zip(batch.entry_start, entries, strict=False)
        for i in range(entry.first_logit, len(entry.token_ids) + entry.n_drafts)
    ]
    assert batch.logit_rows.tolist() == wanted


@settings(max_examples=50, deadline=None)
@given(_entries())
def test_row_writes_where_its_place_says(entries: list[Entry]) -> None:
    batch = pack(entries)
    for row in range(batch.n_rows):
        assert _visible(batch, row)[-1] == (batch.write_page[row], batch.write_offset[row])


def test_draft_places_fill_page_after_page() -> None:
    page, offset = draft_place(np.array([5, 3], np.int32), np.array([1, PAGE, PAGE + 1]))
    assert page.tolist() == [5, 5, 3]
    assert offset.tolist() == [0, PAGE - 1, 0]
