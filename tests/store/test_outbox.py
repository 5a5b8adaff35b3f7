"""What a writer sends, in which order, and what it still has when a store has lost it."""

from __future__ import annotations

import pytest

from tests.store.deltas import random_delta
from tts_orch.store.outbox import Outbox


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def send(outbox: Outbox, *scopes: str) -> None:
    """Send a batch to each scope, and have it acknowledged."""
    for scope in scopes:
        outbox.put(scope, [random_delta(outbox.next_sequence)])
        assert outbox.first is not None
        assert outbox.acknowledge(outbox.first.sequence)


def waiting(outbox: Outbox) -> list[int]:
    """Send all that waits; their numbers in order."""
    sequences = []
    while (batch := outbox.first) is not None:
        sequences.append(batch.sequence)
        outbox.acknowledge(batch.sequence)
    return sequences


def test_batches_that_were_lost_come_before_the_others_and_keep_their_numbers(clock: Clock) -> None:
    outbox = Outbox(1 << 20, clock)
    send(outbox, "a", "a", "b", "a")  # a has 0, 1 and 3
    outbox.put("b", [random_delta(7)])
    outbox.put("a", [random_delta(8)])
    outbox.acknowledge(4)
    assert outbox.previous("a") == 3
    assert outbox.acknowledge(0)  # of a, the store has the first one only
    assert outbox.previous("a") == 0
    assert outbox.n_waiting == sum(random_delta(seed).n_contexts for seed in (1, 3, 8))
    assert waiting(outbox) == [1, 3, 5]
    assert (outbox.n_waiting, outbox.n_resent, outbox.n_lost) == (0, 2, 0)


def test_what_was_sent_is_kept_within_bounds_and_counted_where_it_is_lost_for_good(clock: Clock) -> None:
    outbox = Outbox(1, clock)
    n_contexts = sum(random_delta(sequence).n_contexts for sequence in (0, 1))
    send(outbox, "a", "a")
    outbox.put("a", [random_delta(2)])
    assert outbox.acknowledge(-1)
    assert waiting(outbox) == [2]
    assert (outbox.n_resent, outbox.n_lost) == (0, n_contexts)


def test_store_that_loses_what_it_gets_is_not_sent_it_all_the_time(clock: Clock) -> None:
    outbox = Outbox(1 << 20, clock)
    send(outbox, "a")
    outbox.put("a", [random_delta(1)])
    assert outbox.acknowledge(-1)
    outbox.acknowledge(0)
    assert not outbox.acknowledge(-1)
    clock.now = 10.0
    assert outbox.acknowledge(-1)
    assert waiting(outbox) == [0, 1]


def test_last_batch_is_offered_again_as_one_that_the_store_should_have(clock: Clock) -> None:
    outbox = Outbox(1 << 20, clock)
    send(outbox, "a", "a", "b")
    outbox.offer_again("a")
    outbox.offer_again("c")
    assert outbox.first is not None
    assert (outbox.first.sequence, outbox.previous("a")) == (1, 1)
    assert waiting(outbox) == [1]


def test_scopes_out_of_use_are_forgotten(clock: Clock) -> None:
    outbox = Outbox(1 << 20, clock)
    send(outbox, "a", "b")
    outbox.keep({"b"})
    assert (outbox.previous("a"), outbox.previous("b")) == (-1, 1)
    outbox.offer_again("a")
    assert outbox.first is None


def test_a_batch_that_was_offered_again_counts_if_it_was_lost(clock: Clock) -> None:
    outbox = Outbox(1 << 20, clock)
    send(outbox, "a")
    outbox.offer_again("a")
    assert outbox.acknowledge(0)  # the store has it
    assert outbox.n_resent == 0
    outbox.offer_again("a")
    assert outbox.acknowledge(-1)
    assert waiting(outbox) == [0]
    assert outbox.n_resent == 1
