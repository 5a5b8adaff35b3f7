"""The keyed noise of `policies.drafting.gumbel` in torch, for devices that numba does not reach.

The same Philox integers and the same formula; the logarithms are the device's own, so a Gumbel may differ in its last
bit. torch has no full support for unsigned words: everything is int64, whose products wrap to the right 64 bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts_orch.seeds import PHILOX_M0, PHILOX_M1, PHILOX_ROUNDS, PHILOX_W0, PHILOX_W1

__all__ = ["gumbel_rows", "keyed_argmax", "word_rows"]

_MASK: Final = 0xFFFFFFFF
_CHUNK: Final = 1 << 23
"""Noise words computed at once: bounds the memory of a call to some hundred megabytes."""


def word_rows(
    seeds: NDArray[np.uint64], positions: NDArray[np.int64], n_vocabulary: int, plane: int, device: torch.device
) -> Tensor:
    """Return the noise words of every id at each (seed, position): int64 `[R, V]`, values below 2^32."""
    blocks = torch.arange((n_vocabulary + 3) // 4, device=device)
    x0, x1 = blocks[None, :], _column(positions.astype(np.int64), device)
    x2, x3 = torch.full_like(x0, plane), torch.zeros_like(x0)
    k0 = _column((seeds & np.uint64(_MASK)).astype(np.int64), device)
    k1 = _column((seeds >> np.uint64(32)).astype(np.int64), device)
    for _ in range(PHILOX_ROUNDS):
        low, high = x0 * PHILOX_M0, x2 * PHILOX_M1
        x0, x1, x2, x3 = (high >> 32 & _MASK) ^ x1 ^ k0, high & _MASK, (low >> 32 & _MASK) ^ x3 ^ k1, low & _MASK
        k0, k1 = k0 + PHILOX_W0 & _MASK, k1 + PHILOX_W1 & _MASK
    return torch.stack((x0, x1, x2, x3), dim=-1).flatten(1)[:, :n_vocabulary]


def gumbel_rows(
    seeds: NDArray[np.uint64], positions: NDArray[np.int64], n_vocabulary: int, device: torch.device
) -> Tensor:
    """Return the Gumbel noise of every id at each (seed, position): float64 `[R, V]`."""
    high, low = (word_rows(seeds, positions, n_vocabulary, plane, device) for plane in (0, 1))
    uniform = (high + (low.double() + 0.5) * 2.0**-32) * 2.0**-32
    return -torch.log(-torch.log1p(-uniform))


def keyed_argmax(logits: Tensor, seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sample a token from every row of `logits` `[R, V]`; see `policies.drafting.gumbel.keyed_argmax`."""
    n_rows, n_vocabulary = logits.shape
    chunk = max(1, _CHUNK // n_vocabulary)
    winners = np.empty(n_rows, np.int64)
    for rows in (slice(start, start + chunk) for start in range(0, n_rows, chunk)):
        noise = gumbel_rows(seeds[rows], positions[rows], n_vocabulary, logits.device)
        best, ids = (logits[rows].double() + noise).max(dim=1)
        winners[rows] = torch.where(best > -torch.inf, ids, -1).cpu().numpy()
    return winners


def _column(values: NDArray[np.int64], device: torch.device) -> Tensor:
    return torch.from_numpy(values).to(device)[:, None]
