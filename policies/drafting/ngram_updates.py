"""The compiled writers of an n-gram table: laws counted into all orders, and deltas of other tables merged."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE
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
    Keys,
    Longs,
    context_key,
    find_entry,
    home,
    touch,
)
from tts_orch.policies.drafting.ngram_scopes import is_open, serial_of
from tts_orch.records import FloatArray, IntArray

__all__ = ["LEAST_SHARE", "MOST_COUNT", "are_contexts", "are_laws", "are_open", "merge_contexts", "observe_laws"]

Contexts: TypeAlias = tuple[Keys, NDArray[np.uint8], Longs, Longs, IntArray, Longs]
"""Columns of a `ContextDelta`: key, order, count, start, ids, sums."""

LEAST_SHARE: Final = 64
"""Ids of a smaller quantised probability are not worth a table's memory."""
MOST_COUNT: Final = (2**32 - 1) // PROBABILITY_ONE
"""Observations whose sums surely fit 32 bits; before an entry has more, its count and sums are halved."""
_RECLAIM_STEPS: Final = 16
_MOST_EVICTIONS: Final = 8


@numba.njit(cache=True)
def are_laws(ids: IntArray, probabilities: FloatArray, vocabulary_size: int) -> bool:
    """Return whether all ids are below the vocabulary size and all probabilities in [0, 1], but for rounding."""
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            if not (0 <= ids[row, rank] < vocabulary_size and 0.0 <= probabilities[row, rank] <= 1.0001):
                return False
    return True


@numba.njit(cache=True)
def are_open(columns: Columns, salts: Keys) -> bool:
    """Return whether all salts belong to open scopes."""
    for salt in salts:
        if not is_open(columns, serial_of(salt)):
            return False
    return True


@numba.njit(cache=True)
def are_contexts(contexts: Contexts, vocabulary_size: int) -> bool:
    """Return whether ids are below the vocabulary size, and counts and sums positive and possible."""
    key, _, count, start, ids, sums = contexts
    for context in range(len(key)):
        for i in range(start[context], start[context + 1]):
            if not (0 <= ids[i] < vocabulary_size and 0 <= sums[i] // PROBABILITY_ONE <= count[context]):
                return False
    return True


@numba.njit(cache=True)
def observe_laws(
    columns: Columns,
    salts: Keys,
    history: IntArray,
    law_ids: IntArray,
    probabilities: FloatArray,
    returns_contexts: bool,
) -> Contexts:
    """Count law row `i` once into each order of the context `history[i]`, most recent token first, -1 for none.

    Probabilities are quantised to `floor(p * 65535 + 1/2)`, 65535 at most; ids whose share is 0 are left out.

    Returns:
        The observations as columns of a `ContextDelta`, without salts; none unless asked for.
    """
    n_rows, k = law_ids.shape
    n_most = n_rows * ORDERS if returns_contexts else 0
    key, order_of, start = np.empty(n_most, np.uint64), np.empty(n_most, np.uint8), np.zeros(n_most + 1, np.int64)
    flat_ids, flat_sums = np.empty(n_most * k, np.int32), np.empty(n_most * k, np.int64)
    ids, shares = np.empty(k, np.int32), np.empty(k, np.int64)
    n, m = 0, 0
    for row in range(n_rows):
        serial = serial_of(salts[row])
        n_shares = _quantise(law_ids[row], probabilities[row], ids, shares)
        last_key = np.uint64(0)
        for order in range(1, ORDERS + 1):
            if history[row, order - 1] < 0:
                break
            last_key = context_key(last_key, history[row, order - 1], order)
            if returns_contexts:
                flat_ids[m : m + n_shares], flat_sums[m : m + n_shares] = ids[:n_shares], shares[:n_shares]
                m += n_shares
                key[n], order_of[n], start[n + 1] = last_key, order, m
                n += 1
            _add(columns, last_key ^ salts[row], serial, 1, ids[:n_shares], shares[:n_shares])
    return key[:n], order_of[:n], np.ones(n, np.int64), start[: n + 1], flat_ids[:m], flat_sums[:m]


@numba.njit(cache=True)
def _quantise(ids: IntArray, probabilities: FloatArray, kept: IntArray, shares: Longs) -> int:
    """Write the ids of positive share and their shares; return how many they are."""
    n = 0
    for rank in range(len(ids)):
        share = math.floor(np.float64(probabilities[rank]) * PROBABILITY_ONE + 0.5)
        if share > 0:
            kept[n], shares[n] = ids[rank], min(share, PROBABILITY_ONE)
            n += 1
    return n


@numba.njit(cache=True)
def merge_contexts(columns: Columns, salt: np.uint64, contexts: Contexts) -> None:
    """Add the contexts of a delta to a scope."""
    key, _, count, start, ids, sums = contexts
    for i in range(len(key)):
        own = slice(start[i], start[i + 1])
        _add(columns, key[i] ^ salt, serial_of(salt), count[i], ids[own], sums[own])


@numba.njit(cache=True)
def _add(columns: Columns, key: np.uint64, serial: int, count: int, ids: IntArray, sums: Longs) -> None:
    """Add observations of one context; an unknown one of which no id has a share worth keeping stays unknown."""
    least = LEAST_SHARE * count
    entry = find_entry(columns, key)
    if entry >= 0:
        touch(columns, entry)
    elif key == 0 or not _has_share(sums, least):  # 0 means an empty slot: one context in 2^64 is never stored
        return
    else:
        entry = _enter(columns, key, serial)
    n_halvings = _count(columns, entry, count)
    n_new = _add_known(columns, entry, ids, sums, least, n_halvings)
    if n_new:
        entry, units = _widen(columns, entry, n_new)
        _add_new(columns, entry, units, ids, sums, least, n_halvings)


@numba.njit(cache=True)
def _has_share(sums: Longs, least: int) -> bool:
    for total in sums:
        if total >= least:
            return True
    return False


@numba.njit(cache=True)
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


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _add_known(columns: Columns, entry: int, ids: IntArray, sums: Longs, least: int, n_halvings: int) -> int:
    """Add the sums of the ids that the entry has; return how many others have a share worth keeping."""
    header = columns[HEADERS][entry]
    start, n_ids, n_new = header[START], header[N_IDS], 0
    for i in range(len(ids)):
        rank = _rank(columns, start, n_ids, ids[i])
        if rank < n_ids:
            columns[SUMS][start + rank] += np.uint32(sums[i] >> n_halvings)
            _rise(columns, start, rank)
        elif sums[i] >= least:
            n_new += 1
    return n_new


@numba.njit(cache=True)
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


@numba.njit(cache=True)
def _move(columns: Columns, entry: int, start: int) -> None:
    header, ids, sums = columns[HEADERS][entry], columns[IDS], columns[SUMS]
    n_ids, before = header[N_IDS], header[START]
    for rank in range(n_ids):
        ids[start + rank], sums[start + rank] = ids[before + rank], sums[before + rank]
    if n_ids:
        release(columns, np.int64(before), n_units(n_ids))
    header[START] = start


@numba.njit(cache=True)
def _add_new(columns: Columns, entry: int, units: int, ids: IntArray, sums: Longs, least: int, n_halvings: int) -> None:
    """Take ids in that the entry has not, while there is room or their sums are larger than the smallest one."""
    header, known_ids, known_sums = columns[HEADERS][entry], columns[IDS], columns[SUMS]
    start, n_ids = header[START], header[N_IDS]
    for i in range(len(ids)):
        if sums[i] < least or _rank(columns, start, n_ids, ids[i]) < n_ids:
            continue
        if n_ids < units * UNIT:
            n_ids += 1
        elif not _is_before(sums[i] >> n_halvings, ids[i], known_sums[start + n_ids - 1], known_ids[start + n_ids - 1]):
            continue
        known_ids[start + n_ids - 1], known_sums[start + n_ids - 1] = ids[i], sums[i] >> n_halvings
        _rise(columns, start, n_ids - 1)
    header[N_IDS] = n_ids
    if n_units(n_ids) < units:  # a delta that names an id twice
        release(columns, start + n_units(n_ids) * UNIT, units - n_units(n_ids))


@numba.njit(cache=True)
def _rank(columns: Columns, start: int, n_ids: int, token: int) -> int:
    ids = columns[IDS]
    for rank in range(n_ids):
        if ids[start + rank] == token:
            return rank
    return n_ids


@numba.njit(cache=True)
def _is_before(sum_a: int, id_a: int, sum_b: int, id_b: int) -> bool:
    return sum_a > sum_b or (sum_a == sum_b and id_a < id_b)


@numba.njit(cache=True)
def _rise(columns: Columns, start: int, rank: int) -> None:
    """Move an id whose sum has grown to its place in the order."""
    ids, sums = columns[IDS], columns[SUMS]
    token, total, cell = ids[start + rank], sums[start + rank], start + rank
    while cell > start and _is_before(total, token, sums[cell - 1], ids[cell - 1]):
        ids[cell], sums[cell] = ids[cell - 1], sums[cell - 1]
        cell -= 1
    ids[cell], sums[cell] = token, total
