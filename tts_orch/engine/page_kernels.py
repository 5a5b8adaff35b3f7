"""Compiled loops that put keys and values into canonical pages and move them between pages."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.parallel import on_every_thread, take_task
from tts_orch.records import FloatArray, IntArray

__all__ = ["move_positions", "write_rows"]

_PAGE = 64
_ROWS_A_TASK = 16  # neighbouring positions share the cache lines of a key tile


@njit(cache=True, nogil=True)
def _write_tasks(
    counter: NDArray[np.int64],
    key: FloatArray,
    value: FloatArray,
    pages: FloatArray,
    start: int,
    write_page: IntArray,
    write_offset: IntArray,
) -> None:
    n_rows, n_heads, head_dim = key.shape
    n_chunks = (n_rows + _ROWS_A_TASK - 1) // _ROWS_A_TASK
    while True:
        task = take_task(counter)
        if task >= n_chunks * n_heads:
            return
        head = task % n_heads
        first = task // n_heads * _ROWS_A_TASK
        last = min(first + _ROWS_A_TASK, n_rows)
        keys = start + head * head_dim * _PAGE
        values = keys + n_heads * head_dim * _PAGE
        for d in range(head_dim):
            for row in range(first, last):
                pages[write_page[row], keys + d * _PAGE + write_offset[row]] = key[row, head, d]
        for row in range(first, last):
            for d in range(head_dim):
                pages[write_page[row], values + write_offset[row] * head_dim + d] = value[row, head, d]


@njit(cache=True, nogil=True)
def write_rows(
    control: NDArray[np.int64],
    n_threads: int,
    key: FloatArray,
    value: FloatArray,
    pages: FloatArray,
    start: int,
    write_page: IntArray,
    write_offset: IntArray,
) -> None:
    """Write rows `[R, kv_heads, head_dim]` into the layer that begins at element `start` of a page `[elements]`."""
    counter = np.zeros(1, np.int64)
    arguments = (counter, key, value, pages, start, write_page, write_offset)
    on_every_thread(control, n_threads, _write_tasks, arguments)


@njit(cache=True, nogil=True)
def _move_tasks(
    counter: NDArray[np.int64],
    pages: FloatArray,
    starts: NDArray[np.int64],
    kv_heads: NDArray[np.int64],
    head_dims: NDArray[np.int64],
    source_page: IntArray,
    source_offset: IntArray,
    target_page: IntArray,
    target_offset: IntArray,
) -> None:
    while True:
        layer = take_task(counter)
        if layer >= kv_heads.size:
            return
        head_dim = head_dims[layer]
        width = kv_heads[layer] * head_dim
        keys = starts[layer]
        values = keys + width * _PAGE
        for i in range(source_page.size):
            source, target = source_page[i], target_page[i]
            a, b = source_offset[i], target_offset[i]
            for row in range(width):  # head by head, dimension by dimension
                pages[target, keys + row * _PAGE + b] = pages[source, keys + row * _PAGE + a]
            for tile in range(0, width, head_dim):
                start = values + tile * _PAGE
                for d in range(head_dim):
                    pages[target, start + b * head_dim + d] = pages[source, start + a * head_dim + d]


@njit(cache=True, nogil=True)
def move_positions(
    control: NDArray[np.int64],
    n_threads: int,
    pages: FloatArray,
    starts: NDArray[np.int64],
    kv_heads: NDArray[np.int64],
    head_dims: NDArray[np.int64],
    source_page: IntArray,
    source_offset: IntArray,
    target_page: IntArray,
    target_offset: IntArray,
) -> None:
    """Copy positions in all layers of `pages` `[n_pages, elements]`; layer `i` begins at element `starts[i]`."""
    counter = np.zeros(1, np.int64)
    arguments = (
        counter, pages, starts, kv_heads, head_dims, source_page, source_offset, target_page, target_offset
    )  # fmt: skip
    on_every_thread(control, n_threads, _move_tasks, arguments)
