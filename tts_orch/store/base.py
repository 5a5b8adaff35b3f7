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
        entries: in order of their ids; perhaps not all there are.
        last_id: read on after this.
        has_gap: whether entries after the asked id are gone; then there are none here and the snapshot must be reloaded.
        n_rejected: entries that are no batches, and are left out.
    """

    entries: Sequence[LogEntry]
    last_id: int
    has_gap: bool = False
    n_rejected: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sum of a log's beginning.

    Attributes:
        log_id: id of the last entry in it; read on after this.
        sequences: last sequence number in it by writer.
        blobs: packed `ContextDelta`s that have no context in common, cut to the most probable ids.
    """

    log_id: int
    sequences: Mapping[str, int]
    blobs: Sequence[bytes]


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

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        """Add a batch; one that the writer has sent already counts once.

        Args:
            scope: whose log.
            writer: who sends it.
            sequence: the writer's number for it.
            blob: packed `ContextDelta`.
            previous: number of the last batch that the store has acknowledged to the writer, -1 for none.

        Returns:
            The number of the writer's last batch in the store. It is less than `sequence`, and nothing was added, where the
            store has lost `previous`.
        """
        ...

    def read(self, scope: str, after_id: int) -> LogRead:
        """Return entries after an id."""
        ...

    def snapshot(self, scope: str) -> Snapshot:
        """Return the folded beginning of a scope's log, an empty one if nothing was folded."""
        ...
