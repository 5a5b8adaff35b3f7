"""Microseconds a row of what sampling does with a row of logits: noise words, the keyed draw, the raw law's statistics.

python benchmarks/noise.py
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch

from tts_orch.engine.laws import raw_statistics
from tts_orch.engine.row_kernels import keyed_argmax
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.policies.drafting.gumbel import fill_words

_VOCABULARY_SIZE = 49_152
_ROWS = 16
_REPEATS = 300


def median_us(run: Callable[[], object], n_rows: int) -> float:
    """Return the median time of many calls, in microseconds a row."""
    run()  # compiles
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - started)
    return float(np.median(times)) / 1000 / n_rows


def machine() -> str:
    """Return processor, cores and versions in a line."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    processor = names[0] if names else platform.machine()
    return f"{processor}, {os.cpu_count()} cores; numba {numba.__version__}, torch {torch.__version__}, {n_threads()} threads"


def main() -> None:
    """Measure and print."""
    set_threads(1)
    logits = 3 * torch.randn(_ROWS, _VOCABULARY_SIZE, generator=torch.Generator().manual_seed(0))
    rows, words = logits.numpy(), np.empty(_VOCABULARY_SIZE, np.uint32)
    seeds, positions = np.arange(_ROWS, dtype=np.uint64), np.arange(_ROWS)
    runs: dict[str, tuple[Callable[[], object], int]] = {
        "fill_words": (lambda: fill_words(np.uint64(1), 2, 0, words), 1),
        "keyed_argmax": (lambda: keyed_argmax(rows, seeds, positions), _ROWS),
        "raw_statistics": (lambda: raw_statistics(logits), _ROWS),
    }
    print(machine())
    for name, (run, n_rows) in runs.items():
        print(f"{name:14} {median_us(run, n_rows):7.1f} us a row of {_VOCABULARY_SIZE}, median of {_REPEATS} calls")


if __name__ == "__main__":
    main()
