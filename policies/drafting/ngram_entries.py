"""One entry of an n-gram table: entered, counted, given room, its ids kept sorted."""

from __future__ import annotations

from typing import Final

import numpy as np

from tts_orch.policies.drafting.context_delta import KEPT, PROBABILITY_ONE
from tts_orch.policies.drafting.ngram_arena import UNIT, allocate, n_units, release
from tts_orch.policies.drafting.ngram_eviction import CAPACITY, OCCUPIED, evict, reclaim
from tts_orch.policies.drafting.ngram_kernels import (
    COUNT,
    HEADERS,
    IDS,
    KEYS,
    N_IDS,
    SCOPES,
    SERIAL,
    START,
    STATE,
    SUMS,
    USE,
    Columns,
    Longs,
    find_entry,
    home,
    kernel,
    touch,
)
from tts_orch.records import IntArray

__all__ = ["LEAST_SHARE", "MOST_COUNT", "add_context"]

LEAST_SHARE: Final = 64
"""Ids of a smaller mean probability, a thousandth, do not enter: they would take a quarter of the memory, and leaving them
out moves an exposed law by 0.001 (L1) in the mean."""
MOST_COUNT: Final = (2**32 - 1) // PROBABILITY_ONE
"""Observations whose sums surely fit 32 bits; before an entry has more, its count and sums are halved."""
_RECLAIM_STEPS: Final = 16
"""Slots that every new entry searches for dead ones: about a sixteenth of all slots has dead entries at most."""
_MOST_EVICTIONS: Final = 8
"""Entries that make room in the arena for one block, before a smaller block has to do."""


@kernel
def add_context(columns: Columns, key: np.uint64, serial: int, count: int, ids: IntArray, sums: Longs) -> None:
    """Add observations of one context; an unknown one of which no id has a share worth keeping stays unknown."""
    least = LEAST_SHARE * count
    entry = find_entry(columns, key)
    if entry >= 0:
        touch(columns, entry)
    elif key == 0 or _largest(sums) < least:  # 0 means an empty slot: one context in 2^64 is never stored
        return
    else:
        entry = _enter(columns, key, serial)
    n_halvings = _count(columns, entry, count)
    most = max(1, count >> n_halvings) * PROBABILITY_ONE  # halving rounds: no sum may outgrow its count
    n_new = _add_known(columns, entry, ids, sums, least, n_halvings, most)
    if n_new:
        entry, units = _widen(columns, entry, n_new)
        _add_new(columns, entry, units, ids, sums, least, n_halvings, most)


@kernel
def _largest(sums: Longs) -> int:
    largest = 0
    for total in sums:
        largest = max(largest, int(total))
    return largest


@kernel
def _enter(columns: Columns, key: np.uint64, serial: int) -> int:
    """Enter an unknown key without ids; a full table makes room. Return the entry's number."""
    keys, headers, state = columns[KEYS], columns[HEADERS], columns[STATE]
    reclaim(columns, _RECLAIM_STEPS)
    if state[OCCUPIED] == state[CAPACITY]:
        evict(columns, key)
    slot = home(key, len(keys))
    while keys[slot] != 0:
        slot = slot + 1 if slot + 1 < len(keys) else 0
    keys[slot] = key
    headers[slot, COUNT], headers[slot, N_IDS], headers[slot, USE], headers[slot, SERIAL] = 0, 0, 1, serial
    state[OCCUPIED] += 1
    columns[SCOPES][serial % len(columns[SCOPES]), 1] += 1
    return slot


@kernel
def _count(columns: Columns, entry: int, count: int) -> int:
    """Add observations, halving all before them if the sums might overflow; return how often theirs must be halved."""
    header, sums = columns[HEADERS][entry], columns[SUMS]
    n_halvings = 0
    while (count >> n_halvings) > MOST_COUNT // 2:
        n_halvings += 1
    added = max(1, count >> n_halvings)
    while header[COUNT] + added > MOST_COUNT:
        header[COUNT] = (header[COUNT] + 1) // 2
        for cell in range(header[START], header[START] + header[N_IDS]):
            sums[cell] //= np.uint32(2)
    header[COUNT] += added
    return n_halvings


@kernel
def _add_known(columns: Columns, entry: int, ids: IntArray, sums: Longs, least: int, n_halvings: int, most: int) -> int:
    """Add the sums of the ids that the entry has; return how many others have a share worth keeping."""
    header = columns[HEADERS][entry]
    start, n_ids, n_new = header[START], header[N_IDS], 0
    for i in range(len(ids)):
        rank = _rank(columns, start, n_ids, ids[i])
        if rank < n_ids:
            columns[SUMS][start + rank] += np.uint32(min(sums[i] >> n_halvings, most))
            _rise(columns, start, rank)
        elif sums[i] >= least:
            n_new += 1
    return n_new


@kernel
def _widen(columns: Columns, entry: int, n_new: int) -> tuple[int, int]:
    """Move an entry to a block with room for more ids, or what comes nearest where the arena is full.

    Returns:
        The entry's number, which changes if others had to make room, and the units of its block.
    """
    key, n_ids = columns[KEYS][entry], columns[HEADERS][entry, N_IDS]
    before, units = n_units(n_ids), n_units(min(n_ids + n_new, KEPT))
    start, n_evictions = np.int64(-1), 0
    while units > before:
        start = allocate(columns, units)
        if start >= 0:
            break
        if n_evictions < _MOST_EVICTIONS:
            evict(columns, key)
            n_evictions += 1
        else:
            units -= 1
    entry = find_entry(columns, key)
    if start >= 0:
        _move(columns, entry, start)
    return entry, units


@kernel
def _move(columns: Columns, entry: int, start: int) -> None:
    header, ids, sums = columns[HEADERS][entry], columns[IDS], columns[SUMS]
    n_ids, before = header[N_IDS], header[START]
    for rank in range(n_ids):
        ids[start + rank], sums[start + rank] = ids[before + rank], sums[before + rank]
    if n_ids:
        release(columns, np.int64(before), n_units(n_ids))
    header[START] = start


@kernel
def _add_new(
    columns: Columns, entry: int, units: int, ids: IntArray, sums: Longs, least: int, n_halvings: int, most: int
) -> None:
    """Take ids in that the entry has not, while there is room or their sums are larger than the smallest one."""
    header, known_ids, known_sums = columns[HEADERS][entry], columns[IDS], columns[SUMS]
    start, n_ids = header[START], header[N_IDS]
    for i in range(len(ids)):
        if sums[i] < least or _rank(columns, start, n_ids, ids[i]) < n_ids:
            continue
        share = min(sums[i] >> n_halvings, most)
        if n_ids < units * UNIT:
            n_ids += 1
        elif not _is_before(share, ids[i], known_sums[start + n_ids - 1], known_ids[start + n_ids - 1]):
            continue
        known_ids[start + n_ids - 1], known_sums[start + n_ids - 1] = ids[i], share
        _rise(columns, start, n_ids - 1)
    header[N_IDS] = n_ids
    if n_units(n_ids) < units:  # a delta that names an id twice
        release(columns, start + n_units(n_ids) * UNIT, units - n_units(n_ids))


@kernel
def _rank(columns: Columns, start: int, n_ids: int, token: int) -> int:
    ids = columns[IDS]
    for rank in range(n_ids):
        if ids[start + rank] == token:
            return rank
    return n_ids


@kernel
def _is_before(sum_a: int, id_a: int, sum_b: int, id_b: int) -> bool:
    return sum_a > sum_b or (sum_a == sum_b and id_a < id_b)


@kernel
def _rise(columns: Columns, start: int, rank: int) -> None:
    """Move an id whose sum has grown to its place in the order."""
    ids, sums = columns[IDS], columns[SUMS]
    token, total, cell = ids[start + rank], sums[start + rank], start + rank
    while cell > start and _is_before(total, token, sums[cell - 1], ids[cell - 1]):
        ids[cell], sums[cell] = ids[cell - 1], sums[cell - 1]
        cell -= 1
    ids[cell], sums[cell] = token, total
