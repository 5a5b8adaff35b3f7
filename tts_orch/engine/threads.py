"""One number of threads for everything in the process that computes: torch and the compiled kernels."""

from __future__ import annotations

import torch

from tts_orch.errors import ConfigError

__all__ = ["n_threads", "reserve_for_kernels", "set_threads"]

_n_threads: int | None = None


def set_threads(n: int) -> None:
    """Let torch and the compiled kernels use `n` threads.

    Raises:
        ConfigError: `n` is below 1.
    """
    global _n_threads
    if n < 1:
        raise ConfigError(f"threads: {n} is not a number of threads; give 1 or more")
    torch.set_num_threads(n)
    _n_threads = n


def n_threads() -> int:
    """Threads of the compiled kernels: what was set, else as many as torch has."""
    return _n_threads or torch.get_num_threads()


def reserve_for_kernels() -> None:
    """Leave torch one thread, where compiled kernels do all heavy work: its waiting threads would take their cores."""
    set_threads(n_threads())
    torch.set_num_threads(1)
