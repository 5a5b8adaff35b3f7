"""What arrives at a replica reaches its table in portions: all of it, in order, and never much at once."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.deltas import contents, random_delta
from tts_orch.policies.drafting.context_delta import ContextDelta, ScopeDelta, coalesce
from tts_orch.policies.drafting.ngram_kernels import FREE_UNITS, IDS, LINKS, SUMS
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.store.inbox import Inbox
from tts_orch.store.memory import MemoryStore
from tts_orch.store.replica import Replica
from tts_orch.store.wire import pack


@given(
    arrivals=st.lists(st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.booleans()), max_size=6),
    portions=st.lists(st.integers(1, 40), min_size=1),
)
@settings(max_examples=50, deadline=None)
def test_everything_is_taken_once_and_in_order(arrivals: list[tuple[int, str, bool]], portions: list[int]) -> None:
    inbox, added, taken = Inbox(), [], []
    for seed, scope, is_reload in arrivals:
        added.append((ScopeDelta(scope, random_delta(seed)), is_reload))
        inbox.add(added[-1][0], is_reload=is_reload)
    while inbox.n_contexts:
        n = portions[len(taken) % len(portions)]
        portion = inbox.take(n)
        assert portion is not None
        assert portion[0].contexts.n_contexts <= n
        taken.append(portion)
    assert inbox.take(1) is None
    assert inbox.n_reloads == 0
    assert sum(is_reload for _, is_reload in taken) == sum(is_reload for _, is_reload in added)
    assert [(delta.scope, key) for delta, _ in taken for key in delta.contexts.key.tolist()] == [
        (delta.scope, key) for delta, _ in added for key in delta.contexts.key.tolist()
    ]
    for scope in "ab":
        of_scope = [[delta.contexts for delta, _ in deltas if delta.scope == scope] for deltas in (added, taken)]
        assert contents(coalesce(of_scope[0])) == contents(coalesce(of_scope[1]))


@given(seeds=st.lists(st.integers(0, 50), min_size=1, max_size=6), n_contexts=st.integers(1, 30))
@settings(max_examples=30, deadline=None)
def test_portions_make_the_table_that_whole_deltas_make(seeds: list[int], n_contexts: int) -> None:
    whole, by_portions = (NgramTable(max_entries=64, vocabulary_size=1000) for _ in range(2))  # so small that it evicts
    inbox = Inbox()
    for table in (whole, by_portions):
        table.open("a")
        for column in (IDS, SUMS, FREE_UNITS, LINKS):
            table.columns[column].fill(0)  # what was never used is left as it was found
    for seed in seeds:
        delta = random_delta(seed, n_tokens=40)
        whole.merge("a", delta)
        inbox.add(ScopeDelta("a", delta))
    while (portion := inbox.take(n_contexts)) is not None:
        by_portions.merge("a", portion[0].contexts)
    for ours, theirs in zip(by_portions.columns, whole.columns, strict=True):
        np.testing.assert_array_equal(ours, theirs)


class SlowDrafter:
    """Takes a millisecond of a clock of its own to merge a delta."""

    def __init__(self) -> None:
        self.now = 0.0
        self.n_undrained = 0
        self.n_drains = 0
        self.merged: list[tuple[int, bool]] = []

    scopes = frozenset({"scope"})

    def drain(self) -> list[ScopeDelta]:
        self.n_drains += 1
        return []

    def merge(self, delta: ScopeDelta) -> None:
        self.now += 0.001
        self.merged.append((delta.contexts.n_contexts, False))

    def reload(self, delta: ScopeDelta) -> None:
        self.now += 0.001
        self.merged.append((delta.contexts.n_contexts, True))


def wide_delta(n_contexts: int) -> ContextDelta:
    ones = np.ones(n_contexts, np.int64)
    keys = np.arange(1, n_contexts + 1, dtype=np.uint64)
    start = np.arange(n_contexts + 1)
    return ContextDelta(keys, ones.astype(np.uint8), ones, start, ones.astype(np.int32), ones)


@pytest.fixture
def drafter() -> SlowDrafter:
    return SlowDrafter()


@pytest.fixture
def replica(drafter: SlowDrafter) -> Replica:
    """A replica whose thread has looked at the store and sleeps."""
    store = MemoryStore()
    store.append("scope", "other", 0, pack(wide_delta(100_000)))
    replica = Replica(drafter, store, "anna", interval_s=0.005, clock=lambda: drafter.now)
    drafter.now += 0.01
    replica.apply()  # says which scopes are in use
    deadline = time.monotonic() + 30
    while replica._inbox.n_contexts == 0 and time.monotonic() < deadline:
        time.sleep(0.005)
    replica.close()
    return replica


def test_a_large_delta_takes_a_tenth_of_the_time_between_steps(replica: Replica, drafter: SlowDrafter) -> None:
    n_before = replica._inbox.n_contexts
    assert n_before == 100_000
    for step_s, n_portions in ((0.0, 1), (0.05, 5), (0.0, 1), (0.1, 10), (60.0, 20)):
        drafter.now += step_s
        drafter.merged.clear()
        replica.apply()
        assert len(drafter.merged) in (n_portions, n_portions + 1)  # the clock's rounding decides
    while replica._inbox.n_contexts:
        replica.apply()
    assert replica.statistics().merged_contexts == 100_000


def test_nothing_is_drained_while_a_reload_waits(replica: Replica, drafter: SlowDrafter) -> None:
    replica._inbox.add(ScopeDelta("scope", wide_delta(1000)), is_reload=True)
    n_drains = drafter.n_drains
    drafter.now += 0.01
    replica.apply()
    assert replica._inbox.n_reloads == 1
    assert drafter.n_drains == n_drains
    while replica._inbox.n_contexts:
        drafter.now += 0.01
        replica.apply()
    assert drafter.n_drains > n_drains
    assert sum(is_reload for _, is_reload in drafter.merged) == 1
