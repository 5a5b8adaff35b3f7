"""Deltas as bytes.

A batch is a header `<4sBII>` (magic, version, contexts `n`, ids `m`), then six little-endian columns, each one byte with
the size of its unsigned items (1, 2, 3, 4 or 8) and the items: key, order, count and number of ids `[n]`, ids and sums
`[m]`. Columns are as narrow as their largest value allows. Contexts come in ascending order of keys, ids of a context in
ascending order.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tts_orch.errors import StoreError
from tts_orch.policies.drafting.context_delta import ORDERS, PROBABILITY_ONE, ContextDelta, coalesce

__all__ = ["MOST_OBSERVATIONS", "pack", "unpack", "unpack_all"]

_HEADER = struct.Struct("<4sBII")
_MAGIC = b"TTSD"
_VERSION = 1
_SIZES = (1, 2, 3, 4, 8)
MOST_OBSERVATIONS = 1 << 40
"""Observations a context may have; sums stay far below 2^63."""


def pack(contexts: ContextDelta) -> bytes:
    """Return the bytes of a coalesced delta; equal deltas give equal bytes."""
    columns = contexts.key, contexts.order, contexts.count, np.diff(contexts.start), contexts.ids, contexts.sums
    header = _HEADER.pack(_MAGIC, _VERSION, contexts.n_contexts, len(contexts.ids))
    return header + b"".join(_pack_column(column) for column in columns)


def unpack(blob: bytes) -> ContextDelta:
    """Read a packed delta.

    Raises:
        StoreError: bytes that `pack` cannot have made.
    """
    try:
        magic, version, n, m = _HEADER.unpack_from(blob)
    except struct.error:
        raise StoreError(f"a delta of {len(blob)} bytes has no header") from None
    if magic != _MAGIC or version != _VERSION:
        raise StoreError(f"a delta of format {magic!r} {version}; this program reads {_MAGIC!r} {_VERSION}")
    columns, place = [], _HEADER.size
    for length in (n, n, n, n, m, m):
        column, place = _unpack_column(blob, place, length)
        columns.append(column)
    if place != len(blob):
        raise StoreError(f"a delta of {len(blob)} bytes should end at {place}")
    _check(columns)
    key, order, count, n_ids, ids, sums = columns
    start = np.concatenate(([0], np.cumsum(n_ids, dtype=np.int64)))
    return ContextDelta(
        key=key.astype(np.uint64),
        order=order.astype(np.uint8),
        count=count.astype(np.int64),
        start=start,
        ids=ids.astype(np.int32),
        sums=sums.astype(np.int64),
    )


def unpack_all(blobs: Sequence[bytes]) -> tuple[ContextDelta, int]:
    """Add packed deltas up; return their sum, and how many could not be read: those cost their statistics only."""
    deltas = []
    for blob in blobs:
        with suppress(StoreError):
            deltas.append(unpack(blob))
    return coalesce(deltas), len(blobs) - len(deltas)


def _pack_column(column: NDArray[Any]) -> bytes:
    n_bits = int(column.max(initial=0)).bit_length()
    size = next(size for size in _SIZES if n_bits <= 8 * size)
    if size == 3:
        return bytes([size]) + column.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return bytes([size]) + column.astype(f"<u{size}").tobytes()


def _unpack_column(blob: bytes, place: int, length: int) -> tuple[NDArray[Any], int]:
    size = blob[place] if place < len(blob) else 0
    end = place + 1 + size * length
    if size not in _SIZES or end > len(blob):
        raise StoreError(f"a delta of {len(blob)} bytes has no column of {length} items at {place}")
    if size == 3:
        low, middle, high = np.frombuffer(blob, np.uint8, 3 * length, place + 1).reshape(-1, 3).astype(np.uint32).T
        return low | middle << 8 | high << 16, end
    return np.frombuffer(blob, f"<u{size}", length, place + 1), end


def _check(columns: Sequence[NDArray[Any]]) -> None:
    """Refuse columns that no coalesced delta has, so that a broken batch never reaches a table."""
    key, order, count, n_ids, ids, sums = columns
    if n_ids.sum(dtype=object) != len(ids):
        raise StoreError("a delta whose contexts do not own all its ids")
    owner = np.repeat(np.arange(len(key)), n_ids.astype(np.int64))
    limit = count.astype(np.uint64)[owner] * np.uint64(PROBABILITY_ONE)
    rules = (
        ("keys are not ascending", key[1:] > key[:-1]),
        ("an order is impossible", (order >= 1) & (order <= ORDERS)),
        ("a count is impossible", (count >= 1) & (count <= MOST_OBSERVATIONS)),
        ("an id is no token id", ids < 1 << 31),
        ("ids are not ascending", (ids[1:] > ids[:-1]) | (owner[1:] > owner[:-1])),
        ("a sum exceeds its count", (sums >= 1) & (sums <= limit)),
    )
    for fault, holds in rules:
        if not holds.all():
            raise StoreError(f"a delta in which {fault}")
