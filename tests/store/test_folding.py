"""Folding in buckets gives what adding everything up at once gives."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.deltas import contents, random_delta
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.store.base import LogRead, Snapshot
from tts_orch.store.folding import BUCKET_CONTEXTS, fold, read_all, read_end
from tts_orch.store.memory import MemoryStore
from tts_orch.store.wire import MOST_OBSERVATIONS, pack


def many_contexts(n: int, seed: int = 0) -> ContextDelta:
    """Contexts of one id each."""
    key = np.unique(np.random.default_rng(seed).integers(1, 2**63, n).astype(np.uint64))
    ones = np.ones(len(key), np.int64)
    return ContextDelta(key, ones.astype(np.uint8), ones, np.arange(len(key) + 1), ones.astype(np.int32), ones)


@given(seeds=st.lists(st.integers(0, 30), max_size=10), n_news=st.integers(0, 5), n_buckets=st.integers(0, 6))
@settings(max_examples=40, deadline=None)
def test_same_as_adding_up_at_once(seeds: list[int], n_news: int, n_buckets: int) -> None:
    deltas = [random_delta(seed, n_ids=60) for seed in seeds]
    old, news = coalesce(deltas[n_news:]).cut(32), coalesce(deltas[:n_news])
    ends = np.linspace(0, old.n_contexts, n_buckets + 1).astype(int).tolist()
    blobs = [pack(old.part(first, last)) for first, last in itertools.pairwise(ends)] if n_buckets else [pack(old)]
    assert contents(coalesce(list(fold(blobs, news)))) == contents(coalesce([old, news]).cut(32))


def test_buckets_are_split_in_order_of_their_keys_and_never_too_large() -> None:
    blobs: list[bytes] = []
    total: list[ContextDelta] = []
    for seed in range(4):
        news = many_contexts(3000, seed)
        total.append(news)
        buckets = list(fold(blobs, news))
        assert max(bucket.n_contexts for bucket in buckets) <= BUCKET_CONTEXTS
        keys = np.concatenate([bucket.key for bucket in buckets])
        assert (keys[1:] > keys[:-1]).all()
        blobs = [pack(bucket) for bucket in buckets]
    assert contents(coalesce(buckets)) == contents(coalesce(total))


def test_bucket_that_cannot_be_read_costs_its_contexts_only() -> None:
    old = many_contexts(3000)
    blobs = [pack(bucket) for bucket in fold([], old)]
    kept = coalesce(list(fold([*blobs[:1], b"not a bucket", *blobs[2:]], ContextDelta.empty())))
    assert 0 < kept.n_contexts < old.n_contexts
    assert contents(kept).items() <= contents(old).items()


def test_buckets_of_a_stranger_may_come_in_any_order() -> None:
    old, news = many_contexts(3000), many_contexts(500, seed=1)
    blobs = [pack(bucket) for bucket in fold([], old)][::-1]
    assert contents(coalesce(list(fold(blobs, news)))) == contents(coalesce([old, news]))


def test_rare_contexts_leave_a_snapshot_that_is_too_large() -> None:
    twice = many_contexts(100)
    once = many_contexts(100, seed=1)
    news = coalesce([twice, twice, once])
    assert contents(coalesce(list(fold([], news, least_count=2)))) == contents(coalesce([twice, twice]))


def test_counts_that_nobody_can_have_seen_do_not_spoil_their_bucket() -> None:
    some = many_contexts(10)
    most = replace(some.part(0, 1), count=np.array([MOST_OBSERVATIONS]), sums=np.array([1]))
    kept = coalesce(list(fold([pack(coalesce([most]))], coalesce([some]))))
    assert contents(kept) == contents(some.part(1, 10))


def test_each_batch_is_read_once_and_the_latest_writers_come_last() -> None:
    store = MemoryStore(first_id=0, fold_bytes=1 << 20)
    for writer, sequence in (("anna", 0), ("ben", 0), ("anna", 1)):
        store.append("scope", writer, sequence, pack(random_delta(sequence)))
    _snapshot, end = read_all(store, "scope")
    assert (len(end.blobs), end.n_entries) == (3, 3)
    assert [*end.sequences.items()] == [("ben", 0), ("anna", 1)]
    known = Snapshot(0, {"anna": 0}, ())
    later = read_end(store, "scope", known)
    assert later is not None
    assert len(later.blobs) == 2
    assert read_end(store, "scope", known, max_bytes=0) is not None


def test_a_log_that_was_trimmed_meanwhile_is_read_again_and_not_for_ever() -> None:
    class Trimmed(MemoryStore):
        n_gaps = 1

        def read(self, scope: str, after_id: int) -> LogRead:
            self.n_gaps -= 1
            return LogRead((), after_id, has_gap=True) if self.n_gaps >= 0 else super().read(scope, after_id)

    store = Trimmed(first_id=0)
    store.append("scope", "anna", 0, pack(random_delta(0)))
    assert read_all(store, "scope")[1].n_entries == 1
    store.n_gaps = 1000
    with pytest.raises(StoreError, match="trimmed faster"):
        read_all(store, "scope")
