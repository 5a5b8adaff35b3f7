"""One replica's place in the log of one scope: what is new, once each, without its own batches."""

from __future__ import annotations

from dataclasses import dataclass

from tts_orch.policies.drafting.context_delta import ContextDelta
from tts_orch.store.base import LogEntry, StatisticsLog
from tts_orch.store.wire import unpack_all

__all__ = ["News", "ScopeReader"]


@dataclass(frozen=True, slots=True)
class News:
    """What a poll found.

    Attributes:
        contexts: to be added to the local table.
        is_reload: they stand for everything sent so far and replace the table.
        n_rejected: batches that could not be read.
        has_lost: whether the store lacks batches that it had.
    """

    contexts: ContextDelta
    is_reload: bool = False
    n_rejected: int = 0
    has_lost: bool = False


class ScopeReader:
    """Follows a log from its snapshot on.

    Args:
        log: the store.
        scope: whose log.
        writer: the replica's own name; what it sends from `next_sequence` on is in its table already.
        next_sequence: number of the replica's next batch.
    """

    def __init__(self, log: StatisticsLog, scope: str, writer: str, next_sequence: int) -> None:
        self._log = log
        self._scope = scope
        self._writer = writer
        self._own_from = next_sequence
        self._after: int | None = None
        self._seen: dict[str, int] = {}  # last sequence number by writer

    def poll(self, next_sequence: int) -> News:
        """Read on.

        Args:
            next_sequence: number of the replica's next batch.

        Raises:
            StoreError: the store failed; nothing was missed, poll again.
        """
        if self._after is None:
            return self._load(next_sequence)
        read = self._log.read(self._scope, self._after)
        if read.has_gap:
            return self._load(next_sequence)
        contexts, n_rejected = unpack_all([entry.blob for entry in read.entries if self._is_new(entry)])
        self._after = read.last_id
        return News(contexts, n_rejected=n_rejected + read.n_rejected)

    def _load(self, next_sequence: int) -> News:
        """Go on from the snapshot, whose sum replaces what was merged before.

        A snapshot that lacks batches seen before belongs to a store that has lost its past: the table knows more. So it
        does where parts of the snapshot cannot be read; an empty table takes the rest.
        """
        snapshot = self._log.snapshot(self._scope)
        is_first, self._after = self._after is None, snapshot.log_id
        has_lost = any(snapshot.sequences.get(writer, -1) < last for writer, last in self._seen.items())
        if has_lost or (snapshot.sequences == self._seen and not is_first):
            return News(ContextDelta.empty(), has_lost=has_lost)
        contexts, n_rejected = unpack_all(snapshot.blobs)
        self._seen, self._own_from = dict(snapshot.sequences), next_sequence
        if n_rejected and not is_first:
            return News(ContextDelta.empty(), n_rejected=n_rejected)
        return News(contexts, is_reload=not is_first, n_rejected=n_rejected)

    def _is_new(self, entry: LogEntry) -> bool:
        if entry.sequence <= self._seen.get(entry.writer, -1):
            return False
        self._seen[entry.writer] = entry.sequence
        return entry.writer != self._writer or entry.sequence < self._own_from
