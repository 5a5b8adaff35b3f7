"""Kernels over rows of logits on CPUs: what they find in a row depends on that row alone.

torch's reductions over few rows are shared out among threads, so their bits follow the batch; here a thread takes whole
rows and every row goes through the same instructions in the same order.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.fixed_math import exp
from tts_orch.engine.parallel import on_every_thread, take_task, team
from tts_orch.engine.threads import n_threads
from tts_orch.policies.drafting.gumbel import draw_group, noise_groups

__all__ = ["describe_rows", "keyed_argmax", "top_rows"]

_BLOCK: Final = 256


@njit(inline="always")
def _is_behind(value, token_id, other_value, other_id):  # type: ignore[no-untyped-def]
    return value < other_value or (value == other_value and token_id > other_id)


@njit(nogil=True, cache=True)
def _sift(values: NDArray[np.floating], ids: NDArray[np.int32], place: int, n: int) -> None:
    """Restore the heap of the first `n` entries below `place`; its root is the entry behind all others."""
    value, token_id = values[place], ids[place]
    child = 2 * place + 1
    while child < n:
        if child + 1 < n and _is_behind(values[child + 1], ids[child + 1], values[child], ids[child]):
            child += 1
        if not _is_behind(values[child], ids[child], value, token_id):
            break
        values[place], ids[place] = values[child], ids[child]
        place, child = child, 2 * child + 1
    values[place], ids[place] = value, token_id


@njit(nogil=True, cache=True)
def _top(row: NDArray[np.floating], values: NDArray[np.floating], ids: NDArray[np.int32]) -> None:
    """Write the largest entries of a row in descending order, equals by id. Most blocks hold none and are skipped."""
    k = len(values)
    values[:], ids[:] = row[:k], np.arange(k)
    for place in range(k // 2 - 1, -1, -1):
        _sift(values, ids, place, k)
    for first in range(k, len(row), _BLOCK):
        block = row[first : first + _BLOCK]
        has_larger = False
        for i in range(len(block)):
            has_larger |= block[i] > values[0]
        if not has_larger:
            continue
        for i in range(len(block)):
            if block[i] > values[0]:
                values[0], ids[0] = block[i], first + i
                _sift(values, ids, 0, k)
    for last in range(k - 1, 0, -1):
        values[0], values[last], ids[0], ids[last] = values[last], values[0], ids[last], ids[0]
        _sift(values, ids, 0, last)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _sums(row: NDArray[np.float32], largest: float) -> tuple[float, float]:
    """Return the sum of exp(row - largest) and of the row, both added up in float64.

    Reassociation lets the loop use vectors; the order of the sum is then the compiled code's, the same for every row.
    """
    mass, total = 0.0, 0.0
    for i in range(len(row)):
        mass += np.float64(exp(row[i] - largest))
        total += np.float64(row[i])
    return mass, total


@njit(nogil=True, cache=True)
def _top_team(counter, logits, values, ids):  # type: ignore[no-untyped-def]
    row = take_task(counter)
    while row < len(logits):
        _top(logits[row], values[row], ids[row])
        row = take_task(counter)


@njit(nogil=True, cache=True)
def _describe_team(counter, logits, values, ids, normalisers, means):  # type: ignore[no-untyped-def]
    row = take_task(counter)
    while row < len(logits):
        _top(logits[row], values[row], ids[row])
        mass, total = _sums(logits[row], values[row, 0])
        normalisers[row] = values[row, 0] + math.log(mass)
        means[row] = total / logits.shape[1]
        row = take_task(counter)


@njit(nogil=True, cache=True)
def _draw_team(counter, logits, seeds, positions, order, starts, winners):  # type: ignore[no-untyped-def]
    group = take_task(counter)
    while group < len(starts) - 1:
        draw_group(group, logits, seeds, positions, order, starts, winners)
        group = take_task(counter)


@njit(nogil=True, cache=True)
def _run_top(entry, n, arguments):  # type: ignore[no-untyped-def]
    on_every_thread(entry, n, _top_team, arguments)


@njit(nogil=True, cache=True)
def _run_describe(entry, n, arguments):  # type: ignore[no-untyped-def]
    on_every_thread(entry, n, _describe_team, arguments)


@njit(nogil=True, cache=True)
def _run_draw(entry, n, arguments):  # type: ignore[no-untyped-def]
    on_every_thread(entry, n, _draw_team, arguments)


def top_rows(logits: NDArray[np.floating], k: int) -> tuple[NDArray[np.floating], NDArray[np.int32]]:
    """Return the `k <= V` largest entries of every row `[R, V]` and their ids, largest first, equals by id."""
    values, ids = np.empty((len(logits), k), logits.dtype), np.empty((len(logits), k), np.int32)
    _run_top(team(), n_threads(), (np.zeros(1, np.int64), logits, values, ids))
    return values, ids


def describe_rows(
    logits: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Return the `k` largest values, their ids, the log-normaliser and the mean of every row `[R, V]`."""
    values, ids = np.empty((len(logits), k), np.float32), np.empty((len(logits), k), np.int32)
    normalisers, means = np.empty(len(logits)), np.empty(len(logits))
    counter = np.zeros(1, np.int64)
    _run_describe(team(), n_threads(), (counter, logits, values, ids, normalisers, means))
    return values, ids, normalisers, means


def keyed_argmax(
    logits: NDArray[np.floating], seeds: NDArray[np.uint64], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Do what `policies.drafting.gumbel.keyed_argmax` does, on all threads."""
    winners = np.full(len(logits), -1, np.int64)
    order, starts = noise_groups(seeds, positions)
    counter = np.zeros(1, np.int64)
    _run_draw(team(), n_threads(), (counter, logits, seeds, positions, order, starts, winners))
    return winners
