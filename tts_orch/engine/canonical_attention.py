"""Attention whose bits depend on the row alone: float32 on the CPU, compiled.

Every row reduces over its visible keys in order of absolute position, in blocks of 64 positions that begin at multiples
of 64; the blocks are merged in order by the online softmax (arXiv 1805.02867). A score is one chain of fused
multiply-adds over the head dimension, the weights of a block are summed by a fixed tree, its output is one chain over
the positions. Where a key lies (committed page or draft page), how many rows share the pass and which thread works on a
row never enter the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.fixed_math import exp, fma, tanh
from tts_orch.engine.lanes import LANES, add_lanes, fma_lanes, load_lanes, splat, store_lanes
from tts_orch.engine.parallel import on_every_thread, take_task
from tts_orch.records import FloatArray, IntArray

__all__ = ["attend"]

_PAGE = 64
_MOST_ROWS_A_TASK = 16
_NOTHING = np.float32(-np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@njit(cache=True, nogil=True, forceinline=True)
def _score_tile(query: FloatArray, q: int, head_dim: int, pages: FloatArray, tile: int, scores: FloatArray) -> None:
    """Scores of the 64 positions of a key tile: the chains of even and of odd dimensions, added."""
    a0 = a1 = b0 = b1 = c0 = c1 = e0 = e1 = splat(_ZERO)
    for d in range(0, head_dim - 1, 2):
        even, odd = splat(query[q + d]), splat(query[q + d + 1])
        row = tile + d * _PAGE
        a0 = fma_lanes(even, load_lanes(pages, row), a0)
        b0 = fma_lanes(even, load_lanes(pages, row + LANES), b0)
        c0 = fma_lanes(even, load_lanes(pages, row + 2 * LANES), c0)
        e0 = fma_lanes(even, load_lanes(pages, row + 3 * LANES), e0)
        a1 = fma_lanes(odd, load_lanes(pages, row + 4 * LANES), a1)
        b1 = fma_lanes(odd, load_lanes(pages, row + 5 * LANES), b1)
        c1 = fma_lanes(odd, load_lanes(pages, row + 6 * LANES), c1)
        e1 = fma_lanes(odd, load_lanes(pages, row + 7 * LANES), e1)
    if head_dim % 2:
        last, row = splat(query[q + head_dim - 1]), tile + (head_dim - 1) * _PAGE
        a0 = fma_lanes(last, load_lanes(pages, row), a0)
        b0 = fma_lanes(last, load_lanes(pages, row + LANES), b0)
        c0 = fma_lanes(last, load_lanes(pages, row + 2 * LANES), c0)
        e0 = fma_lanes(last, load_lanes(pages, row + 3 * LANES), e0)
    store_lanes(scores, 0, add_lanes(a0, a1))
    store_lanes(scores, LANES, add_lanes(b0, b1))
    store_lanes(scores, 2 * LANES, add_lanes(c0, c1))
    store_lanes(scores, 3 * LANES, add_lanes(e0, e1))


@njit(cache=True, nogil=True)
def _score_few(
    query: FloatArray, q: int, head_dim: int, pages: FloatArray, tile: int, n_lanes: int, scores: FloatArray
) -> None:
    """Scores of the first `n_lanes` positions of a key tile (and some after them): the same chains."""
    for start in range(0, n_lanes, LANES):
        a0 = a1 = splat(_ZERO)
        for d in range(0, head_dim - 1, 2):
            row = tile + d * _PAGE + start
            a0 = fma_lanes(splat(query[q + d]), load_lanes(pages, row), a0)
            a1 = fma_lanes(splat(query[q + d + 1]), load_lanes(pages, row + _PAGE), a1)
        if head_dim % 2:
            row = tile + (head_dim - 1) * _PAGE + start
            a0 = fma_lanes(splat(query[q + head_dim - 1]), load_lanes(pages, row), a0)
        store_lanes(scores, start, add_lanes(a0, a1))


@njit(cache=True, nogil=True)
def _score_ancestors(
    query: FloatArray,
    q: int,
    head_dim: int,
    pages: FloatArray,
    page_size: int,
    tile: int,
    lane_page: IntArray,
    lane_offset: IntArray,
    first: int,
    last: int,
    spare: FloatArray,
    scores: FloatArray,
) -> None:
    """Scores of lanes `first .. last - 1`, whose keys lie anywhere: page by page, then picked."""
    lane = first
    while lane < last:
        page, end, most = lane_page[lane], lane, 0
        while end < last and lane_page[end] == page:
            most = max(most, lane_offset[end])
            end += 1
        _score_few(query, q, head_dim, pages, page * page_size + tile, most + 1, spare)
        for i in range(lane, end):
            scores[i] = spare[lane_offset[i]]
        lane = end


@njit(cache=True, nogil=True, forceinline=True)
def _larger(a: np.float32, b: np.float32) -> np.float32:
    return a if a > b else b


@njit(cache=True, nogil=True, forceinline=True)
def _maximum(scores: FloatArray, spare: FloatArray) -> np.float32:
    """Largest of 64 numbers."""
    for i in range(16):
        spare[i] = _larger(_larger(scores[i], scores[i + 32]), _larger(scores[i + 16], scores[i + 48]))
    for i in range(8):
        spare[i] = _larger(spare[i], spare[i + 8])
    for i in range(4):
        spare[i] = _larger(spare[i], spare[i + 4])
    return _larger(_larger(spare[0], spare[2]), _larger(spare[1], spare[3]))


@njit(cache=True, nogil=True, forceinline=True)
def _tree_sum(weights: FloatArray, spare: FloatArray) -> np.float32:
    """Sum of 64 numbers, halves added to halves."""
    for i in range(16):
        spare[i] = (weights[i] + weights[i + 32]) + (weights[i + 16] + weights[i + 48])
    for i in range(8):
        spare[i] = spare[i] + spare[i + 8]
    for i in range(4):
        spare[i] = spare[i] + spare[i + 4]
    return np.float32((spare[0] + spare[2]) + (spare[1] + spare[3]))


@njit(cache=True, nogil=True, forceinline=True)
def _weights(
    scores: FloatArray, first: int, last: int, scaling: np.float32, softcap: np.float32, spare: FloatArray
) -> tuple[np.float32, np.float32]:
    """Turn scores into softmax weights relative to the largest of the block; that maximum and their sum."""
    if softcap > _ZERO:
        for lane in range(_PAGE):
            scores[lane] = softcap * tanh(np.float32(scores[lane] * scaling / softcap))
    else:
        for lane in range(_PAGE):
            scores[lane] = scores[lane] * scaling
    for lane in range(_PAGE):
        scores[lane] = scores[lane] if (lane >= first) & (lane < last) else _NOTHING
    maximum = _maximum(scores, spare)
    for lane in range(_PAGE):
        scores[lane] = exp(np.float32(scores[lane] - maximum))
    return maximum, _tree_sum(scores, spare)


@njit(cache=True, nogil=True, forceinline=True)
def _merge(state: FloatArray, i: int, maximum: np.float32, total: np.float32) -> tuple[np.float32, np.float32]:
    """Add a block to `state[i]` = (maximum, sum of weights) of one query; factors for the old output and the block's."""
    factor = exp(np.float32(-abs(maximum - state[i, 0])))
    keep, add = (factor, _ONE) if maximum > state[i, 0] else (_ONE, factor)
    state[i, 0] = _larger(maximum, state[i, 0])
    state[i, 1] = fma(state[i, 1], keep, np.float32(total * add))
    return keep, add


@njit(cache=True, nogil=True, forceinline=True)
def _add_lanes_to(output: FloatArray, element: int, keep: np.float32, add: np.float32, even: Any, odd: Any) -> None:
    block = fma_lanes(add_lanes(even, odd), splat(add), splat(_ZERO))
    store_lanes(output, element, fma_lanes(load_lanes(output, element), splat(keep), block))


@njit(cache=True, nogil=True, forceinline=True)
def _add_values(
    output: FloatArray,
    q: int,
    head_dim: int,
    keep: np.float32,
    add: np.float32,
    weights: FloatArray,
    pages: FloatArray,
    lane_value: NDArray[np.int64],
    first: int,
    last: int,
) -> None:
    """`output = output * keep + add * sum(weights * values)`; weights of lanes `first .. last - 1` (even) count, others are 0.

    The sum is the chain of even lanes and the chain of odd lanes, each in order of position, added.
    """
    d = 0
    while d + 4 * LANES <= head_dim:
        a0 = a1 = b0 = b1 = c0 = c1 = e0 = e1 = splat(_ZERO)
        for lane in range(first, last, 2):
            even, value = splat(weights[lane]), lane_value[lane] + d
            a0 = fma_lanes(even, load_lanes(pages, value), a0)
            b0 = fma_lanes(even, load_lanes(pages, value + LANES), b0)
            c0 = fma_lanes(even, load_lanes(pages, value + 2 * LANES), c0)
            e0 = fma_lanes(even, load_lanes(pages, value + 3 * LANES), e0)
            odd, value = splat(weights[lane + 1]), lane_value[lane + 1] + d
            a1 = fma_lanes(odd, load_lanes(pages, value), a1)
            b1 = fma_lanes(odd, load_lanes(pages, value + LANES), b1)
            c1 = fma_lanes(odd, load_lanes(pages, value + 2 * LANES), c1)
            e1 = fma_lanes(odd, load_lanes(pages, value + 3 * LANES), e1)
        _add_lanes_to(output, q + d, keep, add, a0, a1)
        _add_lanes_to(output, q + d + LANES, keep, add, b0, b1)
        _add_lanes_to(output, q + d + 2 * LANES, keep, add, c0, c1)
        _add_lanes_to(output, q + d + 3 * LANES, keep, add, e0, e1)
        d += 4 * LANES
    while d + LANES <= head_dim:
        a0 = a1 = splat(_ZERO)
        for lane in range(first, last, 2):
            a0 = fma_lanes(splat(weights[lane]), load_lanes(pages, lane_value[lane] + d), a0)
            a1 = fma_lanes(splat(weights[lane + 1]), load_lanes(pages, lane_value[lane + 1] + d), a1)
        _add_lanes_to(output, q + d, keep, add, a0, a1)
        d += LANES
    while d < head_dim:
        even = odd = _ZERO
        for lane in range(first, last, 2):
            even = fma(weights[lane], pages[lane_value[lane] + d], even)
            odd = fma(weights[lane + 1], pages[lane_value[lane + 1] + d], odd)
        output[q + d] = fma(output[q + d], keep, np.float32(np.float32(even + odd) * add))
        d += 1


@njit(cache=True, nogil=True)
def _locate(
    entry: int,
    row: int,
    block: int,
    first: int,
    last: int,
    page_table: IntArray,
    limit: IntArray,
    ancestor_start: IntArray,
    ancestor_page: IntArray,
    ancestor_offset: IntArray,
    lane_page: IntArray,
    lane_offset: IntArray,
) -> int:
    """Fill in where the keys of lanes `first .. last - 1` lie; the lane at which the ancestors begin."""
    middle = min(max(limit[row] - block * _PAGE, first), last)
    for lane in range(first, middle):
        lane_page[lane] = page_table[entry, block]
        lane_offset[lane] = lane
    ancestor = ancestor_start[row] + block * _PAGE - limit[row]
    for lane in range(middle, last):
        lane_page[lane] = ancestor_page[ancestor + lane]
        lane_offset[lane] = ancestor_offset[ancestor + lane]
    if first % 2:  # lanes are added in pairs; a partner out of sight has weight 0
        lane_page[first - 1], lane_offset[first - 1] = lane_page[first], lane_offset[first]
    if last % 2:
        lane_page[last], lane_offset[last] = lane_page[last - 1], lane_offset[last - 1]
    return middle


@njit(cache=True, nogil=True)
def _attend_rows(
    entry: int,
    kv_head: int,
    first_row: int,
    last_row: int,
    query: FloatArray,
    n_heads: int,
    kv_heads: int,
    head_dim: int,
    pages: FloatArray,
    page_size: int,
    start: int,
    output: FloatArray,
    scaling: np.float32,
    softcap: np.float32,
    window: int,
    positions: IntArray,
    page_table: IntArray,
    limit: IntArray,
    ancestor_start: IntArray,
    ancestor_page: IntArray,
    ancestor_offset: IntArray,
) -> None:
    """Rows `first_row .. last_row - 1` of one entry, the query heads of one key head.

    Block by block, so that a tile is read once for all of them.
    """
    group = n_heads // kv_heads
    tile = start + kv_head * head_dim * _PAGE
    value_tile = tile + kv_heads * head_dim * _PAGE
    state = np.zeros(((last_row - first_row) * group, 2), np.float32)
    state[:, 0] = _NOTHING
    scores, spare = np.empty(_PAGE, np.float32), np.empty(_PAGE, np.float32)
    lane_page, lane_offset = np.empty(_PAGE, np.int32), np.empty(_PAGE, np.int32)
    lane_value = np.empty(_PAGE, np.int64)
    lowest, highest = np.int64(positions[first_row]), np.int64(0)
    for row in range(first_row, last_row):
        lowest = min(lowest, max(0, positions[row] + 1 - window))
        highest = max(highest, positions[row] + 1)
    for block in range(lowest // _PAGE, (highest + _PAGE - 1) // _PAGE):
        for row in range(first_row, last_row):
            first = max(0, positions[row] + 1 - window - block * _PAGE)
            last = min(_PAGE, positions[row] + 1 - block * _PAGE)
            if first >= last:
                continue
            middle = _locate(
                entry, row, block, first, last, page_table, limit, ancestor_start, ancestor_page, ancestor_offset,
                lane_page, lane_offset,
            )  # fmt: skip
            even_first, even_last = first // 2 * 2, (last + 1) // 2 * 2
            for lane in range(even_first, even_last):
                lane_value[lane] = lane_page[lane] * page_size + value_tile + lane_offset[lane] * head_dim
            for g in range(group):
                q = (row * n_heads + kv_head * group + g) * head_dim
                if middle > first:
                    _score_tile(query, q, head_dim, pages, lane_page[first] * page_size + tile, scores)
                _score_ancestors(
                    query, q, head_dim, pages, page_size, tile, lane_page, lane_offset, middle, last, spare, scores
                )
                maximum, total = _weights(scores, first, last, scaling, softcap, spare)
                keep, add = _merge(state, (row - first_row) * group + g, maximum, total)
                _add_values(output, q, head_dim, keep, add, scores, pages, lane_value, even_first, even_last)
    for row in range(first_row, last_row):
        for g in range(group):
            q = (row * n_heads + kv_head * group + g) * head_dim
            for d in range(head_dim):
                output[q + d] = output[q + d] / state[(row - first_row) * group + g, 1]


@njit(cache=True, nogil=True)
def _attend_tasks(
    counter: NDArray[np.int64],
    rows_a_task: int,
    entry_start: IntArray,
    query: FloatArray,
    n_heads: int,
    kv_heads: int,
    head_dim: int,
    pages: FloatArray,
    page_size: int,
    start: int,
    output: FloatArray,
    scaling: np.float32,
    softcap: np.float32,
    window: int,
    positions: IntArray,
    page_table: IntArray,
    limit: IntArray,
    ancestor_start: IntArray,
    ancestor_page: IntArray,
    ancestor_offset: IntArray,
) -> None:
    task = take_task(counter)
    seen = 0  # tasks of the entries before
    for entry in range(entry_start.size - 1):
        first, last = entry_start[entry], entry_start[entry + 1]
        n_tasks = (last - first + rows_a_task - 1) // rows_a_task * kv_heads
        while task < seen + n_tasks:
            row = first + (task - seen) // kv_heads * rows_a_task
            _attend_rows(
                entry, (task - seen) % kv_heads, row, min(row + rows_a_task, last), query, n_heads, kv_heads, head_dim,
                pages, page_size, start, output, scaling, softcap, window, positions, page_table, limit,
                ancestor_start, ancestor_page, ancestor_offset,
            )  # fmt: skip
            task = take_task(counter)
        seen += n_tasks


@njit(cache=True, nogil=True)
def attend(
    runtime_entry: int,
    n_threads: int,
    query: FloatArray,
    kv_heads: int,
    pages: FloatArray,
    start: int,
    scaling: float,
    softcap: float,
    window: int,
    entry_start: IntArray,
    positions: IntArray,
    page_table: IntArray,
    limit: IntArray,
    ancestor_start: IntArray,
    ancestor_page: IntArray,
    ancestor_offset: IntArray,
) -> FloatArray:
    """Attend from `query` `[R, heads, head_dim]` to the pages of one layer; the arrays of a `PackedBatch` as they are.

    Args:
        runtime_entry: `parallel.runtime_entry()`.
        n_threads: threads to use; the result does not depend on it.
        pages: `[n_pages, elements]` in the canonical layout; the layer's tiles begin at element `start` of a page.
        softcap: scores become `softcap * tanh(score / softcap)`; 0 leaves them.
        window: keys at `position - window` and before are invisible.

    Returns:
        `[R, heads, head_dim]`.
    """
    counter = np.zeros(1, np.int64)
    output = np.zeros_like(query)
    n_rows, n_heads, head_dim = query.shape
    rows_a_task = _MOST_ROWS_A_TASK
    while rows_a_task > 1 and n_rows * kv_heads < 4 * n_threads * rows_a_task:
        rows_a_task //= 2
    arguments = (
        counter, rows_a_task, entry_start, query.reshape(-1), n_heads, kv_heads, head_dim, pages.reshape(-1),
        pages.shape[1], start, output.reshape(-1), np.float32(scaling), np.float32(softcap), window, positions,
        page_table, limit, ancestor_start, ancestor_page, ancestor_offset,
    )  # fmt: skip
    on_every_thread(runtime_entry, n_threads, _attend_tasks, arguments)
    return output
