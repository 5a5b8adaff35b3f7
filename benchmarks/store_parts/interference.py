"""Whether the replica's thread keeps a decode thread from running: both need Python's global lock."""

from __future__ import annotations

import argparse
import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

from store_parts.payloads import recurring_deltas
from tts_orch.bench.markdown import Cell, table
from tts_orch.policies.drafting.context_delta import coalesce
from tts_orch.store.wire import pack, unpack

__all__ = ["interference"]

_DISTINCT = 100_000
_OPERATION_ROUNDS = 200_000
"""Of a loop that stands for one operation of a decode step: some 200 us without the lock."""


@numba.njit(nogil=True)
def _operation(rounds: int) -> float:
    total = 0.0
    for i in range(rounds):
        total += np.sqrt(float(i))
    return total


def interference(arguments: argparse.Namespace) -> str:
    """Time of short operations that let go of the lock and take it again, beside a thread that packs, reads and adds up.

    The same work in a process of its own, which shares the machine but not the lock, is the band to compare with.
    """
    _operation(1)
    rows: list[list[Cell]] = []
    cases = (
        ("nothing", _alone),
        ("a process", _beside_process),
        ("a thread", _beside_thread),
        ("a process, again", _beside_process),
    )
    for name, beside in cases:
        with beside():
            seconds = _operation_seconds(arguments.seconds)
        microseconds = [1e6 * float(value) for value in (*np.quantile(seconds, (0.5, 0.9, 0.99, 0.999)), seconds.max())]
        rows.append([name, len(seconds), *microseconds])
    return table(["beside", "operations", "median, us", "90 %", "99 %", "99.9 %", "longest"], rows, digits=0)


def _operation_seconds(duration_s: float) -> np.ndarray:
    seconds, end = [], time.perf_counter() + duration_s
    last = time.perf_counter()
    while last < end:
        _operation(_OPERATION_ROUNDS)
        now = time.perf_counter()
        seconds.append(now - last)
        last = now
    return np.array(seconds)


def _share(end: Any) -> None:
    """Do what a replica's thread does, without a pause."""
    deltas = recurring_deltas(8, _DISTINCT)
    blobs = [pack(delta) for delta in deltas]
    while not end.is_set():
        coalesce([unpack(blob) for blob in blobs])
        pack(coalesce(deltas[:2]))


@contextmanager
def _alone() -> Iterator[None]:
    yield


@contextmanager
def _beside_thread() -> Iterator[None]:
    end = threading.Event()
    thread = threading.Thread(target=_share, args=(end,), daemon=True)
    thread.start()
    time.sleep(1.0)  # it makes its deltas
    try:
        yield
    finally:
        end.set()
        thread.join()


@contextmanager
def _beside_process() -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    process = context.Process(target=_share, args=(end,), daemon=True)
    process.start()
    time.sleep(5.0)  # it imports and makes its deltas
    try:
        yield
    finally:
        end.set()
        process.join()
