"""Folds the end of a log into its snapshot, bucket by bucket: what is in memory at once does not grow with the snapshot."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import KEPT, ContextDelta, coalesce
from tts_orch.store.base import Snapshot, StatisticsLog
from tts_orch.store.wire import MOST_OBSERVATIONS, unpack_all

__all__ = ["BUCKET_CONTEXTS", "LogEnd", "fold", "read_all", "read_buckets", "read_end"]

BUCKET_CONTEXTS: Final = 1024
"""Contexts that a bucket has at most: some 64 KiB."""
_MOST_WRITERS: Final = 4096
"""Writers whose last sequence number is remembered, the latest ones."""
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class LogEnd:
    """What follows a snapshot in its log.

    Attributes:
        blobs: batches that are not in the snapshot, packed as they came.
        sequences: last sequence number by writer, those in the snapshot included.
        last_id: id of the last entry read.
        n_entries: entries read.
        n_rejected: those among them that are no batches.
    """

    blobs: Sequence[bytes]
    sequences: Mapping[str, int]
    last_id: int
    n_entries: int
    n_rejected: int


def read_all(log: StatisticsLog, scope: str) -> tuple[Snapshot, LogEnd]:
    """Read all that a store has of a scope.

    Raises:
        StoreError: the store failed, or changes faster than it can be read.
    """
    for _ in range(_TRIES):
        snapshot = log.snapshot(scope)
        end = read_end(log, scope, snapshot)
        if end is not None:
            return snapshot, end
    raise StoreError(f"store: the log of {scope!r} is trimmed faster than it can be read")


def read_buckets(log: StatisticsLog, scope: str) -> tuple[Iterator[ContextDelta], Mapping[str, int]]:
    """Return the contexts of a scope as buckets that have none in common, and the last sequence number in them by writer.

    Raises:
        StoreError: as `read_all`.
    """
    snapshot, end = read_all(log, scope)
    contexts, _n_broken = unpack_all(end.blobs)
    return fold(snapshot.blobs, contexts), end.sequences


def read_end(log: StatisticsLog, scope: str, snapshot: Snapshot, max_bytes: float = math.inf) -> LogEnd | None:
    """Read what follows a snapshot, each batch once; None where some of it is gone.

    Args:
        log: the store.
        scope: whose log.
        snapshot: where to begin.
        max_bytes: packed bytes after which no more is read.

    Raises:
        StoreError: the store failed.
    """
    sequences, last_id = dict(snapshot.sequences), snapshot.log_id
    blobs: list[bytes] = []
    n_entries = n_rejected = n_bytes = 0
    while n_bytes < max_bytes:
        read = log.read(scope, last_id)
        if read.has_gap:
            return None
        if read.last_id == last_id:
            break
        for entry in read.entries:
            if entry.sequence > sequences.get(entry.writer, -1):
                sequences.pop(entry.writer, None)  # the latest come last
                sequences[entry.writer] = entry.sequence
                blobs.append(entry.blob)
                n_bytes += len(entry.blob)
        last_id = read.last_id
        n_entries += len(read.entries) + read.n_rejected
        n_rejected += read.n_rejected
    latest = dict([*sequences.items()][-_MOST_WRITERS:])
    return LogEnd(blobs, latest, last_id, n_entries, n_rejected)


def fold(blobs: Sequence[bytes], contexts: ContextDelta, least_count: int = 1) -> Iterator[ContextDelta]:
    """Add contexts to a snapshot's packed buckets; yield the buckets of the sum, cut to the most probable ids.

    Args:
        blobs: the buckets, in ascending order of their keys; one that cannot be read is left out.
        contexts: to be added, coalesced.
        least_count: contexts with fewer observations are left out.
    """
    n_added = 0
    for blob in blobs[:-1]:
        old, _n_broken = unpack_all([blob])
        if old.n_contexts:
            end = max(n_added, int(np.searchsorted(contexts.key, old.key[-1], side="right")))
            yield from _split(coalesce([old, contexts.part(n_added, end)]), least_count)
            n_added = end
    last, _n_broken = unpack_all(blobs[-1:])
    yield from _split(coalesce([last, contexts.part(n_added, contexts.n_contexts)]), least_count)


def _split(contexts: ContextDelta, least_count: int) -> Iterator[ContextDelta]:
    """Yield as few buckets of equal size as can be."""
    cut = contexts.where((contexts.count >= least_count) & (contexts.count <= MOST_OBSERVATIONS)).cut(KEPT)
    n_buckets = -(-cut.n_contexts // BUCKET_CONTEXTS)
    ends = np.linspace(0, cut.n_contexts, n_buckets + 1).astype(int).tolist()
    for first, last in itertools.pairwise(ends):
        yield cut.part(first, last)
