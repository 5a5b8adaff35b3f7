"""Attention whose bits depend on the row alone: float32 on the CPU, compiled.

Every row reduces over its visible keys in order of absolute position, in blocks of 64 positions that begin at multiples
of 64; the blocks are merged in order by the online softmax (arXiv 1805.02867). Where a key lies (committed page or draft
page), how many rows share the pass and which thread works on a row never enter the arithmetic of `tile_arithmetic`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.parallel import on_every_thread, take_task
from tts_orch.engine.tile_arithmetic import add_values, merge, score_few, score_tile, softmax_weights
from tts_orch.records import FloatArray, IntArray

__all__ = ["attend"]

_PAGE = 64
_MOST_ROWS_A_TASK = 16
_TASKS_A_THREAD = 4


class _Layer(NamedTuple):
    """One layer's arrays, flat, and its sizes; `start` is the element of a page at which its tiles begin."""

    query: FloatArray
    output: FloatArray
    pages: FloatArray
    page_size: int
    start: int
    n_heads: int
    kv_heads: int
    head_dim: int
    scaling: np.float32
    softcap: np.float32
    window: int


class _Sight(NamedTuple):
    """What the rows see; the arrays of a `PackedBatch`."""

    positions: IntArray
    page_table: IntArray
    limit: IntArray
    ancestor_start: IntArray
    ancestor_page: IntArray
    ancestor_offset: IntArray


class _Lanes(NamedTuple):
    """Where the keys of a block's 64 positions lie, and the element at which their values begin."""

    page: IntArray
    offset: IntArray
    value: NDArray[np.int64]


@njit(cache=True, nogil=True)
def _locate(
    lanes: _Lanes, sight: _Sight, layer: _Layer, entry: int, row: int, block: int, first: int, last: int, tile: int
) -> int:
    """Fill in the lanes `first .. last - 1` of a block; the lane at which the ancestors begin."""
    middle = min(max(sight.limit[row] - block * _PAGE, first), last)
    for lane in range(first, middle):
        lanes.page[lane] = sight.page_table[entry, block]
        lanes.offset[lane] = lane
    ancestor = sight.ancestor_start[row] + block * _PAGE - sight.limit[row]
    for lane in range(middle, last):
        lanes.page[lane] = sight.ancestor_page[ancestor + lane]
        lanes.offset[lane] = sight.ancestor_offset[ancestor + lane]
    for lane in range(first, last):
        lanes.value[lane] = lanes.page[lane] * layer.page_size + tile + lanes.offset[lane] * layer.head_dim
    if first % 2:  # lanes are added in pairs; a partner out of sight has weight 0
        lanes.value[first - 1] = lanes.value[first]
    if last % 2:
        lanes.value[last] = lanes.value[last - 1]
    return middle


@njit(cache=True, nogil=True)
def _score_ancestors(
    layer: _Layer, lanes: _Lanes, q: int, tile: int, first: int, last: int, spare: FloatArray, scores: FloatArray
) -> None:
    """Scores of lanes `first .. last - 1`, whose keys lie anywhere: page by page, then picked."""
    lane = first
    while lane < last:
        page, end, most = lanes.page[lane], lane, 0
        while end < last and lanes.page[end] == page:
            most = max(most, lanes.offset[end])
            end += 1
        score_few(layer.query, q, layer.head_dim, layer.pages, page * layer.page_size + tile, most + 1, spare)
        for i in range(lane, end):
            scores[i] = spare[lanes.offset[i]]
        lane = end


@njit(cache=True, nogil=True)
def _blocks(sight: _Sight, first_row: int, last_row: int, window: int) -> tuple[int, int]:
    """First block that some row sees, and the block after the last."""
    lowest, highest = np.int64(sight.positions[first_row]), np.int64(0)
    for row in range(first_row, last_row):
        position = np.int64(sight.positions[row])
        lowest = min(lowest, max(np.int64(0), position + 1 - window))
        highest = max(highest, position)
    return int(lowest // _PAGE), int(highest // _PAGE + 1)


@njit(cache=True, nogil=True)
def _attend_rows(
    layer: _Layer, sight: _Sight, entry: int, kv_head: int, first_row: int, last_row: int, afterwards: int
) -> None:
    """Rows `first_row .. last_row - 1` of one entry, the query heads of one key head.

    Block by block, so that a tile is read once for all of them; each query fetches its share of the tiles of the next
    block, or from element `afterwards` on in the last.
    """
    head_dim = layer.head_dim
    group = layer.n_heads // layer.kv_heads
    tile = layer.start + kv_head * head_dim * _PAGE
    to_values = layer.kv_heads * head_dim * _PAGE
    n_queries = (last_row - first_row) * group
    state = np.zeros((n_queries, 2), np.float32)
    state[:, 0] = -np.inf
    scores, spare = np.empty(_PAGE + 16, np.float32), np.empty(_PAGE, np.float32)
    lanes = _Lanes(np.empty(_PAGE, np.int32), np.empty(_PAGE, np.int32), np.empty(_PAGE, np.int64))
    step = (2 * _PAGE + n_queries - 1) // n_queries
    first_block, end_block = _blocks(sight, first_row, last_row, layer.window)
    for block in range(first_block, end_block):
        ahead = afterwards
        if block + 1 < min(end_block, sight.page_table.shape[1]) and sight.page_table[entry, block + 1] >= 0:
            ahead = sight.page_table[entry, block + 1] * layer.page_size + tile
        for row in range(first_row, last_row):
            first = max(0, sight.positions[row] + 1 - layer.window - block * _PAGE)
            last = min(_PAGE, sight.positions[row] + 1 - block * _PAGE)
            if first >= last:
                continue
            middle = _locate(lanes, sight, layer, entry, row, block, first, last, tile + to_values)
            for g in range(group):
                q = (row * layer.n_heads + kv_head * group + g) * head_dim
                if middle > first:
                    here = lanes.page[first] * layer.page_size + tile
                    score_tile(layer.query, q, head_dim, layer.pages, here, ahead, step, scores)
                if middle < last:
                    _score_ancestors(layer, lanes, q, tile, middle, last, spare, scores)
                maximum, total = softmax_weights(scores, first, last, layer.scaling, layer.softcap)
                keep, add = merge(state, (row - first_row) * group + g, maximum, total)
                add_values(
                    layer.output, q, head_dim, keep, add, scores, layer.pages, lanes.value,
                    first // 2 * 2, (last + 1) // 2 * 2, ahead + to_values, step * head_dim // _PAGE,
                )  # fmt: skip
                ahead += step * head_dim // 2
    for row in range(first_row, last_row):
        for g in range(group):
            q = (row * layer.n_heads + kv_head * group + g) * head_dim
            for d in range(head_dim):
                layer.output[q + d] = layer.output[q + d] / state[(row - first_row) * group + g, 1]


@njit(cache=True, nogil=True)
def _attend_tasks(counter: NDArray[np.int64], chunks: NDArray[np.int64], layer: _Layer, sight: _Sight) -> None:
    n_tasks = chunks.shape[0] * layer.kv_heads
    upcoming = take_task(counter)
    while upcoming < n_tasks:
        task, upcoming = upcoming, take_task(counter)
        chunk, after = task // layer.kv_heads, min(upcoming, n_tasks - 1)
        page = sight.page_table[chunks[after // layer.kv_heads, 0], 0]
        afterwards = page * layer.page_size + layer.start + after % layer.kv_heads * layer.head_dim * _PAGE
        entry, first_row, last_row = chunks[chunk, 0], chunks[chunk, 1], chunks[chunk, 2]
        _attend_rows(layer, sight, entry, task % layer.kv_heads, first_row, last_row, afterwards)


@njit(cache=True, nogil=True)
def _chunks(entry_start: IntArray, most_rows: int) -> NDArray[np.int64]:
    """Cut the entries into chunks of at most `most_rows` rows: (entry, first row, last row + 1) `[n, 3]`."""
    chunks = np.empty((entry_start[-1], 3), np.int64)
    n = 0
    for entry in range(entry_start.size - 1):
        for first in range(entry_start[entry], entry_start[entry + 1], most_rows):
            chunks[n, 0], chunks[n, 1] = entry, first
            chunks[n, 2] = min(first + most_rows, entry_start[entry + 1])
            n += 1
    return chunks[:n]


@njit(cache=True, nogil=True)
def attend(
    control: NDArray[np.int64],
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
    """Attend from `query` `[R, heads, head_dim]` to one layer of `pages` `[n_pages, elements]`; the same shape.

    `control` is `parallel.team()`; the layer's tiles begin at element `start` of a page. Scores become
    `softcap * tanh(score / softcap)` (0 leaves them); keys at `position - window` and before are invisible. The other
    arrays are those of a `PackedBatch`.
    """
    n_rows, n_heads, head_dim = query.shape
    output = np.zeros_like(query)
    most_rows = _MOST_ROWS_A_TASK
    while most_rows > 1 and n_rows * kv_heads < _TASKS_A_THREAD * n_threads * most_rows:
        most_rows //= 2
    layer = _Layer(
        query.reshape(-1), output.reshape(-1), pages.reshape(-1), pages.shape[1], start, n_heads, kv_heads, head_dim,
        np.float32(scaling), np.float32(softcap), window,
    )  # fmt: skip
    sight = _Sight(positions, page_table, limit, ancestor_start, ancestor_page, ancestor_offset)
    counter = np.zeros(1, np.int64)
    on_every_thread(control, n_threads, _attend_tasks, (counter, _chunks(entry_start, most_rows), layer, sight))
    return output
