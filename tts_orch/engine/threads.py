"""One number of threads for everything in the process that computes: torch and the compiled kernels."""

from __future__ import annotations

import torch

from tts_orch.errors import ConfigError

__all__ = ["n_threads", "set_threads"]


def set_threads(n: int) -> None:
    """Let torch and the compiled kernels use `n` threads; to be called before the first forward pass.

    Raises:
        ConfigError: `n` is below 1.
    """
    if n < 1:
        raise ConfigError(f"threads: {n} is not a number of threads; give 1 or more")
    torch.set_num_threads(n)


def n_threads() -> int:
    """Threads of the team that compiled kernels join: torch's."""
    return torch.get_num_threads()
