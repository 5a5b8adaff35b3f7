"""Drafters with replicas, for tests that are their decode threads."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.store.deltas import knowledge, sharing_stand
from tts_orch.policies.drafting.stand import Stand
from tts_orch.store.base import StatisticsLog
from tts_orch.store.replica import Replica

__all__ = ["Worker", "step_for", "step_until"]

_DEADLINE_S = 30.0
"""Several of the longest pauses of a replica whose store fails; only a hang takes so long."""


class Worker:
    """A drafter with its replica; the test is its decode thread."""

    def __init__(self, log: StatisticsLog, name: str, stand: Stand | None = None) -> None:
        self.stand = stand or sharing_stand()
        self.replica = Replica(self.stand, log, name, interval_s=0.004)

    @property
    def knowledge(self) -> dict[int, int]:
        return knowledge(self.stand)


def step_until(holds: Callable[[], bool], *workers: Worker) -> None:
    """Let workers go on until something holds."""
    deadline = time.monotonic() + _DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, [(worker.knowledge, worker.replica.statistics()) for worker in workers]
        for worker in workers:
            worker.replica.apply()
        time.sleep(0.001)


def step_for(seconds: float, *workers: Worker) -> None:
    """Let workers go on for a while."""
    end = time.monotonic() + seconds
    step_until(lambda: time.monotonic() > end, *workers)
