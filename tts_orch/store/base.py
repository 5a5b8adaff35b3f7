"""The statistics store as everybody sees it: a log of packed deltas for each scope, folded into a snapshot in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["LogEntry", "LogRead", "Snapshot", "StatisticsLog", "StoreStatistics"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One batch of deltas.

    Attributes:
        id: place in the log, growing.
        writer: who sent it; a restarted writer has another name.
        sequence: the writer's number for it, growing; a batch that is sent twice has the same number.
        blob: packed `ContextDelta`.
    """

    id: int
    writer: str
    sequence: int
    blob: bytes


@dataclass(frozen=True, slots=True)
class LogRead:
    """What follows an id in a log.

    Attributes:
        entries: in order of their ids; perhaps not all there are, so read on after the last.
        has_gap: whether entries after the asked id are gone; then there are none here and the snapshot must be reloaded.
    """

    entries: Sequence[LogEntry]
    has_gap: bool


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sum of a log's beginning.

    Attributes:
        log_id: id of the last entry in it; read on after this.
        sequences: last sequence number in it by writer.
        blob: packed `ContextDelta`, cut to the most probable ids.
    """

    log_id: int
    sequences: Mapping[str, int]
    blob: bytes


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Counters of a store since it was opened, and what it holds now."""

    scopes: int
    entries: int
    size_bytes: int
    appended: int
    duplicates: int
    folds: int
    dropped_scopes: int


class StatisticsLog(Protocol):
    """A store of draft statistics; every method may raise `StoreError` and may block up to its deadline."""

    def append(self, scope: str, writer: str, sequence: int, blob: bytes) -> None:
        """Add a batch; one that the writer has sent already counts once."""
        ...

    def read(self, scope: str, after_id: int) -> LogRead:
        """Return entries after an id."""
        ...

    def snapshot(self, scope: str) -> Snapshot:
        """Return the folded beginning of a scope's log, an empty one if nothing was folded."""
        ...

    def statistics(self) -> StoreStatistics:
        """Return the counters."""
        ...
