"""The default store: one log a scope, folded in time, bounded in memory."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.deltas import contents, random_delta
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.memory import MemoryStore
from tts_orch.store.wire import pack, unpack


def everything(store: MemoryStore, scope: str) -> ContextDelta:
    """What a new reader gets: the snapshot and the log after it."""
    snapshot = store.snapshot(scope)
    read = store.read(scope, snapshot.log_id)
    assert not read.has_gap
    return coalesce([unpack(blob) for blob in (*snapshot.blobs, *(entry.blob for entry in read.entries))])


def test_log_in_order_with_ids() -> None:
    store = MemoryStore(first_id=0)
    blobs = [pack(random_delta(i)) for i in range(3)]
    for sequence, blob in enumerate(blobs):
        store.append("a", "writer", sequence, blob)
    store.append("b", "writer", 3, blobs[0])
    first = store.read("a", 0)
    assert [(entry.writer, entry.sequence, entry.blob) for entry in first.entries] == [
        ("writer", i, blob) for i, blob in enumerate(blobs)
    ]
    assert [e.sequence for e in store.read("a", first.entries[0].id).entries] == [1, 2]
    assert store.read("a", first.entries[-1].id).entries == []


def test_a_batch_sent_again_counts_once() -> None:
    store = MemoryStore(first_id=0, fold_bytes=1)
    blob = pack(random_delta(0))
    for _ in range(3):
        store.append("a", "writer", 5, blob)
    store.append("a", "writer", 4, blob)  # older than what is known: sent before, too
    store.append("a", "other", 5, blob)
    assert contents(everything(store, "a")) == contents(coalesce([random_delta(0)] * 2))
    assert store.statistics().duplicates == 3


@given(seeds=st.lists(st.integers(0, 50), min_size=1, max_size=12), fold_bytes=st.integers(1, 20_000))
@settings(max_examples=25, deadline=None)
def test_folding_loses_nothing(seeds: list[int], fold_bytes: int) -> None:
    store = MemoryStore(first_id=0, fold_bytes=fold_bytes)
    writers = ("v", "w", "x")
    for sequence, seed in enumerate(seeds):
        store.append("a", writers[seed % 3], sequence, pack(random_delta(seed)))
    snapshot = store.snapshot("a")
    assert contents(everything(store, "a")) == contents(coalesce([random_delta(seed) for seed in seeds]))
    for writer in writers:
        last = max((i for i, seed in enumerate(seeds) if writers[seed % 3] == writer), default=None)
        logged = [e.sequence for e in store.read("a", snapshot.log_id).entries if e.writer == writer]
        assert max([*logged, snapshot.sequences.get(writer, -1)], default=None) == (-1 if last is None else last)


def test_folding_keeps_the_most_probable_ids() -> None:
    store = MemoryStore(first_id=0, fold_bytes=1)
    delta = random_delta(0, n_tokens=60, n_ids=60)
    store.append("a", "writer", 0, pack(delta))
    assert contents(everything(store, "a")) == contents(delta.cut(32)) != contents(delta)


def test_reader_behind_the_snapshot_gets_a_gap() -> None:
    store = MemoryStore(first_id=0, fold_bytes=3000)
    store.append("a", "writer", 0, pack(random_delta(0)))
    (entry,) = store.read("a", 0).entries
    sequence = 0
    while store.snapshot("a").log_id <= entry.id:
        sequence += 1
        store.append("a", "writer", sequence, pack(random_delta(sequence)))
    assert store.read("a", entry.id).has_gap
    assert store.read("a", entry.id).entries == ()
    assert not store.read("a", store.snapshot("a").log_id).has_gap
    assert contents(everything(store, "a")) == contents(coalesce([random_delta(i) for i in range(sequence + 1)]))


def test_bytes_are_bounded_and_the_scope_unused_longest_goes_first() -> None:
    blob = pack(random_delta(0, n_tokens=30))
    store = MemoryStore(first_id=0, max_bytes=3 * (len(blob) + 2500))
    for sequence, scope in enumerate("abc"):
        store.append(scope, "writer", sequence, blob)
    assert store.statistics().scopes == 3
    (entry,) = store.read("a", 0).entries  # now b was not used for longest
    store.append("d", "writer", 9, blob)
    assert store.statistics().dropped_scopes == 1
    assert store.statistics().size_bytes <= 3 * (len(blob) + 2500)
    assert len(store.read("a", 0).entries) == 1
    assert store.read("b", entry.id).has_gap  # it comes back empty, and a reader that knew it is told
    assert contents(everything(store, "b")) == {}


def test_bytes_that_are_no_delta_are_refused() -> None:
    store = MemoryStore(first_id=0)
    with pytest.raises(StoreError, match="no header"):
        store.append("a", "writer", 0, b"?")
    assert store.statistics().appended == 0


def test_reading_makes_no_scope_and_loses_nothing_that_is_appended_later() -> None:
    store = MemoryStore(first_id=0)
    opened = store.snapshot("a").log_id
    assert store.read("a", opened).entries == []
    store.append("b", "writer", 0, pack(random_delta(0)))
    assert (store.statistics().scopes, len(store.snapshot("a").sequences)) == (1, 0)
    store.append("a", "writer", 1, pack(random_delta(1)))
    assert store.read("a", opened).has_gap  # ids went on meanwhile: the reader looks at the snapshot again
    assert contents(everything(store, "a")) == contents(random_delta(1))
