"""The compiled inner loops of `NgramTable`: context keys, open addressing, sorted rows of sums."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE
from tts_orch.records import FloatArray, IntArray

__all__ = ["Entries", "add_contexts", "are_laws", "context_key", "contexts_of_laws", "fill_index", "find_entry"]

Longs: TypeAlias = NDArray[np.int64]
Keys: TypeAlias = NDArray[np.uint64]


Entries: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""Columns of a table: key, count and number of ids `[capacity]`, ids and sums `[capacity, KEPT]`; an entry's ids are
sorted by falling sum, then by id. A plain tuple, because numba is slow to recognise any other."""

Contexts: TypeAlias = tuple[Keys, Longs, Longs, IntArray, Longs]
"""Columns of a `ContextDelta`: key, count, start, ids, sums."""


@numba.njit(cache=True)
def context_key(shorter: np.uint64, token: int, order: int) -> np.uint64:
    """Return the key of `token` followed by the context of `order - 1` tokens whose key is `shorter` (0 for none).

    Keys travel between workers, so this is a contract: SplitMix64's output function over key, token and order.
    """
    mixed = shorter ^ ((np.uint64(token) << np.uint64(3)) | np.uint64(order))
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@numba.njit(cache=True)
def are_laws(ids: IntArray, probabilities: FloatArray, vocabulary_size: int) -> bool:
    """Return whether all ids are below the vocabulary size and all probabilities in [0, 1], but for rounding."""
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            if not (0 <= ids[row, rank] < vocabulary_size and 0.0 <= probabilities[row, rank] <= 1.0001):
                return False
    return True


@numba.njit(cache=True)
def contexts_of_laws(
    tokens: IntArray, first: int, ids: IntArray, probabilities: FloatArray
) -> tuple[Keys, NDArray[np.uint8], Longs, Longs, IntArray, Longs]:
    """Return the columns of a `ContextDelta`: law row `i` counted once for each order after `tokens[: first + i + 1]`.

    Probabilities are quantised to `floor(p * 65535 + 1/2)`, 65535 at most; ids whose share is 0 are left out.
    """
    n_rows, k = ids.shape
    key = np.empty(n_rows * ORDERS, np.uint64)
    order_of = np.empty(n_rows * ORDERS, np.uint8)
    start = np.zeros(n_rows * ORDERS + 1, np.int64)
    flat_ids = np.empty(n_rows * ORDERS * k, np.int32)
    flat_sums = np.empty(n_rows * ORDERS * k, np.int64)
    n, m = 0, 0
    for row in range(n_rows):
        last_key = np.uint64(0)
        for order in range(1, min(ORDERS, first + row + 1) + 1):
            last_key = context_key(last_key, tokens[first + row + 1 - order], order)
            for rank in range(k):
                share = math.floor(np.float64(probabilities[row, rank]) * PROBABILITY_ONE + 0.5)
                if share > 0:
                    flat_ids[m], flat_sums[m] = ids[row, rank], min(share, PROBABILITY_ONE)
                    m += 1
            key[n], order_of[n], start[n + 1] = last_key, order, m
            n += 1
    return key[:n], order_of[:n], np.ones(n, np.int64), start[: n + 1], flat_ids[:m], flat_sums[:m]


@numba.njit(cache=True)
def find_entry(index: IntArray, keys: Keys, key: np.uint64) -> int:
    """Return the number of the entry with this key, or -1."""
    return int(index[_place(index, keys, key)])


@numba.njit(cache=True)
def _place(index: IntArray, keys: Keys, key: np.uint64) -> np.int64:
    """Return where the index has the key, or the free place where it belongs."""
    mask = len(index) - 1
    place = np.int64(key & np.uint64(mask))
    while index[place] >= 0 and keys[index[place]] != key:
        place = (place + 1) & mask
    return place


@numba.njit(cache=True)
def fill_index(index: IntArray, keys: Keys, size: int) -> None:
    """Enter the first `size` keys into an empty index."""
    for entry in range(size):
        index[_place(index, keys, keys[entry])] = entry


@numba.njit(cache=True)
def add_contexts(index: IntArray, entries: Entries, size: int, contexts: Contexts, done: int) -> tuple[int, int]:
    """Add the contexts of a delta from number `done` on.

    Returns:
        The table's new size, and the number of contexts done: fewer than all when the columns are full.
    """
    known_key, known_count, n_ids, known_ids, known_sums = entries
    key, count, start, ids, sums = contexts
    while done < len(key):
        place = _place(index, known_key, key[done])
        entry = index[place]
        if entry < 0:
            if size == len(known_key):
                break
            entry = index[place] = size
            known_key[entry] = key[done]
            size += 1
        known_count[entry] += count[done]
        own = slice(start[done], start[done + 1])
        n_ids[entry] = _add_sums(known_ids[entry], known_sums[entry], n_ids[entry], ids[own], sums[own])
        done += 1
    return size, done


@numba.njit(cache=True)
def _add_sums(row_ids: IntArray, row_sums: Longs, n_ids: int, ids: IntArray, sums: Longs) -> int:
    """Keep the `KEPT` largest sums of the union: known ids first, so that newcomers meet final sums. Returns `n_ids`."""
    n_new = 0
    for i in range(len(ids)):
        rank = _rank(row_ids, n_ids, ids[i])
        if rank < n_ids:
            row_sums[rank] += sums[i]
            _rise(row_ids, row_sums, rank)
        else:
            n_new += 1
    if n_new == 0:
        return n_ids
    for i in range(len(ids)):
        if _rank(row_ids, n_ids, ids[i]) < n_ids:
            continue
        if n_ids < KEPT:
            n_ids += 1
        elif not _is_before(sums[i], ids[i], row_sums[KEPT - 1], row_ids[KEPT - 1]):
            continue
        row_ids[n_ids - 1], row_sums[n_ids - 1] = ids[i], sums[i]
        _rise(row_ids, row_sums, n_ids - 1)
    return n_ids


@numba.njit(cache=True)
def _rank(row_ids: IntArray, n_ids: int, token: int) -> int:
    for rank in range(n_ids):
        if row_ids[rank] == token:
            return rank
    return n_ids


@numba.njit(cache=True)
def _is_before(sum_a: int, id_a: int, sum_b: int, id_b: int) -> bool:
    return sum_a > sum_b or (sum_a == sum_b and id_a < id_b)


@numba.njit(cache=True)
def _rise(row_ids: IntArray, row_sums: Longs, rank: int) -> None:
    """Move an id whose sum has grown to its place in the order."""
    while rank > 0 and _is_before(row_sums[rank], row_ids[rank], row_sums[rank - 1], row_ids[rank - 1]):
        row_ids[rank], row_ids[rank - 1] = row_ids[rank - 1], row_ids[rank]
        row_sums[rank], row_sums[rank - 1] = row_sums[rank - 1], row_sums[rank]
        rank -= 1
