"""The compiled part of adding deltas up and of cutting them: beside a thread that decodes, which they let run."""

from __future__ import annotations

from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.ngram_kernels import Keys, Longs, kernel
from tts_orch.records import IntArray

__all__ = ["Contexts", "add_up", "largest"]

Contexts: TypeAlias = tuple[Keys, NDArray[np.uint8], Longs, Longs, IntArray, Longs]
"""Columns of a `ContextDelta`: key, order, count, start, ids, sums."""


@numba.njit(cache=True, nogil=True)
def add_up(contexts: Contexts, ranked: Longs) -> Contexts:
    """Add the contexts of equal keys.

    Args:
        contexts: columns of any number of deltas, one behind the other.
        ranked: `[n]` their contexts by rising key.

    Returns:
        Every key once, in this order, and every id of a key once, ascending.
    """
    key, order, count, start, ids, sums = contexts
    n, n_ids = 0, 0
    own_ids, own_sums = np.empty(_most_ids(start), np.int32), np.empty(_most_ids(start), np.int64)
    new_key, new_order, new_count = np.empty_like(key), np.empty_like(order), np.empty_like(count)
    new_start, new_ids, new_sums = np.zeros_like(start), np.empty_like(ids), np.empty_like(sums)
    for context in ranked:
        if n == 0 or key[context] != new_key[n - 1]:
            new_key[n], new_order[n], new_count[n] = key[context], order[context], 0
            new_start[n] = n_ids
            n += 1
        new_count[n - 1] += count[context]
        n_own = _sort(ids, sums, start[context], start[context + 1], own_ids, own_sums)
        n_ids = _insert(own_ids, own_sums, n_own, new_ids, new_sums, new_start[n - 1], n_ids)
    new_start[n] = n_ids
    return new_key[:n], new_order[:n], new_count[:n], new_start[: n + 1], new_ids[:n_ids], new_sums[:n_ids]


@kernel
def _most_ids(start: Longs) -> int:
    most = 0
    for context in range(len(start) - 1):
        most = max(most, start[context + 1] - start[context])
    return most


@kernel
def _sort(ids: IntArray, sums: Longs, first: int, last: int, own_ids: IntArray, own_sums: Longs) -> int:
    """Copy a context's ids and sums by rising id, equal ids added; return how many they are."""
    n = 0
    for i in range(first, last):
        place = n
        while place > 0 and own_ids[place - 1] > ids[i]:
            place -= 1
        if place > 0 and own_ids[place - 1] == ids[i]:
            own_sums[place - 1] += sums[i]
            continue
        for later in range(n, place, -1):
            own_ids[later], own_sums[later] = own_ids[later - 1], own_sums[later - 1]
        own_ids[place], own_sums[place] = ids[i], sums[i]
        n += 1
    return n


@kernel
def _insert(own_ids: IntArray, own_sums: Longs, n_own: int, ids: IntArray, sums: Longs, first: int, last: int) -> int:
    """Merge ids into the sorted ones at `first` to `last`, with room behind them; return where they end."""
    end = last + n_own - _n_common(own_ids, n_own, ids, first, last)
    own, known = n_own - 1, last - 1
    for place in range(end - 1, first - 1, -1):  # from behind, so that what moves overwrites nothing that is wanted
        if own < 0:
            break
        if known < first or own_ids[own] > ids[known]:
            ids[place], sums[place] = own_ids[own], own_sums[own]
            own -= 1
        else:
            is_common = own_ids[own] == ids[known]
            ids[place], sums[place] = ids[known], sums[known] + (own_sums[own] if is_common else 0)
            known -= 1
            own -= is_common
    return end


@kernel
def _n_common(own_ids: IntArray, n_own: int, ids: IntArray, first: int, last: int) -> int:
    n, own = 0, 0
    for known in range(first, last):
        while own < n_own and own_ids[own] < ids[known]:
            own += 1
        n += own < n_own and own_ids[own] == ids[known]
    return n


@numba.njit(cache=True, nogil=True)
def largest(start: Longs, ids: IntArray, sums: Longs, n_kept: int) -> tuple[Longs, Longs]:
    """Find the `n_kept` largest sums of each context, ties to the lowest id.

    Returns:
        Where each context starts among what is kept, and the places of what is kept, ascending.
    """
    new_start, places, n = np.zeros_like(start), np.empty(len(ids), np.int64), 0
    for context in range(len(start) - 1):
        first, last = start[context], start[context + 1]
        if last - first <= n_kept:
            for rank in range(last - first):
                places[n + rank] = first + rank
        else:
            _rank_largest(ids, sums, first, last, places[n : n + n_kept])
            _sort_places(places[n : n + n_kept])
        n += min(last - first, n_kept)
        new_start[context + 1] = n
    return new_start, places[:n]


@kernel
def _rank_largest(ids: IntArray, sums: Longs, first: int, last: int, ranked: Longs) -> None:
    """Write the places of the largest sums between two places, falling."""
    n = 0
    for i in range(first, last):
        rank = n
        while rank > 0 and _is_larger(ids, sums, i, ranked[rank - 1]):
            rank -= 1
        if rank < len(ranked):
            n = min(n + 1, len(ranked))
            for later in range(n - 1, rank, -1):
                ranked[later] = ranked[later - 1]
            ranked[rank] = i


@kernel
def _is_larger(ids: IntArray, sums: Longs, one: int, other: int) -> bool:
    return sums[one] > sums[other] or (sums[one] == sums[other] and ids[one] < ids[other])


@kernel
def _sort_places(places: Longs) -> None:
    for i in range(1, len(places)):
        place, later = places[i], i
        while later > 0 and places[later - 1] > place:
            places[later] = places[later - 1]
            later -= 1
        places[later] = place
