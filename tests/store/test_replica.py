"""Replicas over one store: everybody ends up with the sum of what everybody learned, each part once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np
import pytest

from tests.store.deltas import learn, random_delta, sharing_stand
from tests.store.sharing_workers import Worker, step_for, step_until
from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ScopeDelta, coalesce
from tts_orch.policies.drafting.draft_tree import TrajectoryStart
from tts_orch.records import SamplingParams
from tts_orch.store.backlog import Backlog
from tts_orch.store.base import LogRead, Snapshot
from tts_orch.store.inbox import Inbox
from tts_orch.store.memory import MemoryStore
from tts_orch.store.replica import Replica
from tts_orch.store.wire import pack

pytestmark = pytest.mark.usefixtures("compiled_kernels")

Result = TypeVar("Result")


class UnsureStore:
    """A store whose methods may fail before or after they have done their work."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.is_away = False
        self.loses_answers = False

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        return self._do(lambda: self.store.append(scope, writer, sequence, blob, previous))

    def read(self, scope: str, after_id: int) -> LogRead:
        return self._do(lambda: self.store.read(scope, after_id))

    def snapshot(self, scope: str) -> Snapshot:
        return self._do(lambda: self.store.snapshot(scope))

    def _do(self, work: Callable[[], Result]) -> Result:
        if self.is_away:
            raise StoreError("away")
        result = work()
        if self.loses_answers:
            raise StoreError("no answer")
        return result


@pytest.fixture
def store() -> UnsureStore:
    return UnsureStore()


@pytest.fixture
def workers(store: UnsureStore) -> Iterator[list[Worker]]:
    workers = [Worker(store, name) for name in ("anna", "ben", "cleo")]
    yield workers
    for worker in workers:
        worker.replica.close()


def test_everybody_learns_everything_once(workers: list[Worker]) -> None:
    generator = np.random.default_rng(0)
    expected: dict[int, int] = {}
    for _ in range(60):
        token = int(generator.integers(0, 9))
        worker = workers[int(generator.integers(0, 3))]
        learn(worker.stand, token)
        expected[token] = expected.get(token, 0) + 1
        worker.replica.apply()
        time.sleep(0.001)
    step_until(lambda: all(worker.knowledge == expected for worker in workers), *workers)
    step_for(0.05, *workers)
    assert all(worker.knowledge == expected for worker in workers)


def test_a_batch_whose_answer_was_lost_counts_once(store: UnsureStore, workers: list[Worker]) -> None:
    anna, ben, _ = workers
    step_for(0.02, *workers)
    store.loses_answers = True
    learn(anna.stand, 5)
    step_until(lambda: anna.replica.statistics().failures >= 2, anna)
    assert store.store.statistics().appended == 1
    learn(anna.stand, 6)
    store.loses_answers = False
    step_until(lambda: ben.knowledge == {5: 1, 6: 1}, *workers)
    assert store.store.statistics().duplicates >= 1
    assert anna.knowledge == {5: 1, 6: 1}


def test_failing_store_costs_one_warning_and_nothing_else(
    store: UnsureStore, workers: list[Worker], caplog: pytest.LogCaptureFixture
) -> None:
    anna, ben, _ = workers
    store.is_away = True
    with caplog.at_level(logging.WARNING):
        learn(anna.stand, 1)
        step_until(lambda: anna.replica.statistics().failures >= 3, anna)
    assert anna.replica.statistics().waiting_contexts == 1
    warnings = [record.getMessage() for record in caplog.records if record.name.startswith("tts_orch")]
    assert warnings == ["away; decoding goes on with local statistics"]
    assert anna.knowledge == {1: 1}
    store.is_away = False
    step_until(lambda: ben.knowledge == {1: 1} and not anna.replica.statistics().waiting_contexts, *workers)


def test_late_replica_starts_from_the_snapshot() -> None:
    store = UnsureStore(MemoryStore(fold_bytes=1))
    anna = Worker(store, "anna")
    learn(anna.stand, 1)
    step_until(lambda: store.store.statistics().folds == 1, anna)
    ben = Worker(store, "ben")
    learn(ben.stand, 2)
    step_until(lambda: anna.knowledge == ben.knowledge == {1: 1, 2: 1}, anna, ben)
    for worker in (anna, ben):
        worker.replica.close()


def test_gap_reloads_the_snapshot_and_keeps_what_is_not_in_it() -> None:
    store = UnsureStore(MemoryStore(fold_bytes=1))  # folds every batch: whoever reads later has a gap
    anna, ben = Worker(store, "anna"), Worker(store, "ben")
    step_for(0.02, anna, ben)
    expected: dict[int, int] = {}
    for token in range(6):
        for worker in (anna, ben, anna):
            learn(worker.stand, token)
            worker.replica.apply()
        expected[token] = 3
        step_for(0.01, anna, ben)
    step_until(lambda: anna.knowledge == ben.knowledge == expected, anna, ben)
    assert anna.replica.statistics().reloads + ben.replica.statistics().reloads > 0
    for worker in (anna, ben):
        worker.replica.close()


def test_store_that_lost_its_past_does_not_empty_the_tables(store: UnsureStore, workers: list[Worker]) -> None:
    anna, ben, _ = workers
    learn(anna.stand, 1)
    step_until(lambda: ben.knowledge == {1: 1}, *workers)
    store.store = MemoryStore()
    learn(anna.stand, 2)
    step_until(lambda: ben.knowledge == {1: 1, 2: 1}, *workers)
    assert anna.knowledge == {1: 1, 2: 1}


def test_scope_that_is_opened_again_gets_its_own_past_back(store: UnsureStore) -> None:
    anna = Worker(store, "anna")
    learn(anna.stand, 1)
    step_until(lambda: store.store.statistics().appended == 1, anna)
    anna.stand.close_scope("scope")
    for _ in range(3):  # time enough for the thread to notice
        time.sleep(0.02)
        anna.replica.apply()
    anna.stand.start(TrajectoryStart("again", np.zeros(1, np.int32), "scope", 0, SamplingParams()))
    learn(anna.stand, 2)
    step_until(lambda: anna.knowledge == {1: 1, 2: 1}, anna)
    anna.replica.close()


def test_close_sends_what_is_left(store: UnsureStore) -> None:
    worker = Worker(store, "anna")
    learn(worker.stand, 3)
    worker.replica.close()
    assert store.store.statistics().appended == 1


def test_batches_of_another_target_are_counted_and_skipped(store: UnsureStore) -> None:
    stand = sharing_stand(vocabulary_size=10)
    worker = Worker(store, "anna", stand)
    store.append("scope", "stranger", 0, pack(random_delta(0)))  # has ids up to 29
    step_until(lambda: worker.replica.statistics().rejected == 1, worker)
    assert worker.knowledge == {}
    worker.replica.close()


def test_backlog_is_merged_then_dropped() -> None:
    deltas = [random_delta(seed) for seed in range(4)]
    n = coalesce(deltas).n_contexts
    roomy, narrow = Backlog(max_contexts=2 * n), Backlog(max_contexts=n)
    for backlog in (roomy, narrow):
        for _ in range(5):
            backlog.add([ScopeDelta("old", delta) for delta in deltas])
    assert roomy.n_dropped == 0
    taken = roomy.take()
    assert taken is not None
    assert coalesce(taken[1]).count.sum() == 5 * coalesce(deltas).count.sum()
    assert roomy.take() is None
    assert roomy.n_contexts == 0
    assert narrow.n_dropped > 0
    assert narrow.n_contexts <= n


def test_what_two_threads_share_is_touched_under_the_lock_only() -> None:
    class Guarded(Inbox):
        def take(self, n_contexts: int) -> tuple[ScopeDelta, bool] | None:
            assert replica._lock.locked()
            return super().take(n_contexts)

        def add(self, delta: ScopeDelta, *, is_reload: bool = False) -> None:
            assert replica._lock.locked()
            super().add(delta, is_reload=is_reload)

    stand = sharing_stand()
    replica = Replica(stand, UnsureStore(), "anna", interval_s=60)  # its thread sleeps: the test is both threads
    learn(stand, 1)
    replica._drained_at -= 60
    replica.apply()
    replica._inbox = Guarded()
    replica._send()
    replica._receive()
    replica.apply()
    assert replica.statistics().sent_batches == 1
    replica.close()
