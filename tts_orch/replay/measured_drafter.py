"""`MeasuredDrafter`: counts what becomes of a drafter's nodes and what the drafter costs, in replays and in real runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tts_orch.policies.drafting.draft_tree import (
    Drafter,
    DraftTree,
    Growth,
    RankedSlots,
    SlotSource,
    TrajectoryId,
    VerifiedStep,
)
from tts_orch.policies.drafting.relay import Relay
from tts_orch.replay.acceptance import Acceptance

__all__ = ["Clock", "MeasuredDrafter"]


class Clock:
    """Seconds spent in what is `timed`; the first time is left out, since it loads compiled code."""

    def __init__(self) -> None:
        self._laps: list[float] = []

    @property
    def seconds(self) -> float:
        """All of them."""
        return sum(self._laps[1:])

    def quantile(self, share: float) -> float:
        """Return the seconds that this share of the blocks took at most; 0 if there was but one."""
        return float(np.quantile(self._laps[1:], share)) if len(self._laps) > 1 else 0.0

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Time a block."""
        started = time.perf_counter()
        yield
        self._laps.append(time.perf_counter() - started)


class MeasuredDrafter(Relay):
    """Tallies what a drafter is told, and takes its time.

    Args:
        drafter: who drafts.

    Attributes:
        acceptance: what became of its nodes.
        drafting: time it took to grow trees.
        observing: time it took to learn from verify steps.
    """

    def __init__(self, drafter: Drafter) -> None:
        super().__init__(drafter)
        self.acceptance = Acceptance()
        self.drafting = Clock()
        self.observing = Clock()

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        """Return the drafter's slots; growing them is timed."""
        source = super().slots(trajectories)
        if isinstance(source, RankedSlots):
            return _TimedRankedSlots(source, self.drafting)
        return _TimedSlots(source, self.drafting)

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Tally the verify steps and pass them on."""
        self.acceptance.add(steps)
        with self.observing.timed():
            super().observe(steps)

    @property
    def drafting_us(self) -> float:
        """Microseconds of drafting a verify step."""
        return self._us_a_step(self.drafting)

    @property
    def observing_us(self) -> float:
        """Microseconds of observing a verify step."""
        return self._us_a_step(self.observing)

    def _us_a_step(self, clock: Clock) -> float:
        return 1e6 * clock.seconds / max(self.acceptance.total.verify_steps, 1)


@dataclass(frozen=True, slots=True)
class _TimedSlots:
    source: SlotSource
    clock: Clock

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return the source's trees."""
        with self.clock.timed():
            return self.source.grow(n_nodes)


@dataclass(frozen=True, slots=True)
class _TimedRankedSlots(_TimedSlots):
    source: RankedSlots

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        """Return the source's trees."""
        with self.clock.timed():
            return self.source.grow_while_paying(growth)
