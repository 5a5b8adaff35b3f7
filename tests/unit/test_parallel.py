"""Regions of compiled code: every task is done once, whoever takes part, and results are there when the region ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.parallel import on_every_thread, take_task, team
from tts_orch.engine.threads import n_threads, reserve_for_kernels, set_threads
from tts_orch.errors import ConfigError


@njit(nogil=True)
def _count(counter: NDArray[np.int64], times: NDArray[np.int64], work: int) -> None:
    while True:
        task = take_task(counter)
        if task >= times.size:
            return
        for _ in range(work):
            times[task] += 1


@njit(nogil=True)
def _run(control: NDArray[np.int64], n_threads: int, times: NDArray[np.int64], work: int) -> None:
    on_every_thread(control, n_threads, _count, (np.zeros(1, np.int64), times, work))


@pytest.fixture(autouse=True)
def _restore_threads() -> Iterator[None]:
    before = n_threads()
    yield
    set_threads(before)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once_before_the_region_ends(threads: int) -> None:
    set_threads(threads)
    for work in (1, 1000):
        for _ in range(200):
            times = np.zeros(50, np.int64)
            _run(team(), n_threads(), times, work)
            assert (times == work).all()


def test_two_callers_at_once_do_not_disturb_each_other() -> None:
    set_threads(3)
    wrong: list[int] = []

    def call(work: int) -> None:
        for _ in range(200):
            times = np.zeros(50, np.int64)
            _run(team(), n_threads(), times, work)
            wrong.extend(times[times != work].tolist())

    callers = [threading.Thread(target=call, args=(work,)) for work in (7, 1000)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def test_thread_counts() -> None:
    with pytest.raises(ConfigError, match="threads"):
        set_threads(0)
    set_threads(2)
    reserve_for_kernels()
    assert (n_threads(), torch.get_num_threads()) == (2, 1)
