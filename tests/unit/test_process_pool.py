"""Calls that hang, grow, raise or crash give no result, in time, and harm nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tts_orch.tasks.process_pool import CallLostError, ProcessPool

HANGS = {
    "waits": "__import__('time').sleep(60)",
    "computes inside C": "pow(7, 10**9)",
    "grows": "bytearray(3 << 30)",
    "raises": "1 / 0",
    "crashes": "__import__('os')._exit(3)",
}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPool[[str], object]]:
    pool: ProcessPool[[str], object] = ProcessPool(eval, time_limit_s=0.1, memory_limit_bytes=2 << 30)
    yield pool
    pool.close()


@pytest.mark.parametrize("expression", HANGS.values(), ids=HANGS.keys())
def test_a_lost_call_ends_in_time_and_the_next_one_works(pool: ProcessPool[[str], object], expression: str) -> None:
    started = time.monotonic()
    with pytest.raises(CallLostError):
        pool.call(expression)
    assert time.monotonic() - started < 10
    assert pool.call("1 + 1") == 2


def test_calls_run_elsewhere_on_as_many_processes_as_allowed(pool: ProcessPool[[str], object]) -> None:
    with ThreadPoolExecutor(6) as threads:
        pids = set(threads.map(pool.call, ["__import__('os').getpid()"] * 30))
    assert 1 <= len(pids) <= 2
    assert os.getpid() not in pids


def test_workers_end_with_their_parent_idle_or_busy() -> None:
    program = """if True:
        import os, threading, time
        from tts_orch.tasks.process_pool import ProcessPool
        pool = ProcessPool(eval, time_limit_s=0.5)
        print(pool.call("__import__('os').getpid()"), flush=True)
        threading.Thread(target=pool.call, args=("pow(7, 10**9)",)).start()
        print(pool.call("__import__('os').getpid()"), flush=True)
        os._exit(0)
    """
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    pids = {int(line) for line in finished.stdout.split()}
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(map(_is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
