"""A linear layer whose result for a row does not depend on how many rows share the product.

`nn.functional.linear` rounds a row in several ways, depending on the number of rows. Here every element is the bias plus
chains of fused multiply-adds over fixed parts of the inner dimension, so it is a function of its row and its column of
weights; and the kernel is the better one for the few rows of a verify step, because it fetches weights while it computes.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor, nn

from tts_orch.engine.panel_kernel import MOST_ROWS, PANEL, multiply_add
from tts_orch.engine.parallel import on_every_thread, take_task, team
from tts_orch.engine.threads import n_threads
from tts_orch.records import FloatArray

__all__ = ["StableLinear"]

_LONGEST_CHAIN = 1024
"""Longer inner dimensions are cut into equal chains: less rounding, and a panel's part stays in a core's cache."""

_TASKS_A_THREAD = 4
_ALIGNMENT = 64  # bytes of a cache line


class StableLinear(nn.Module):
    """`x W^T + b` for float32 on the CPU; the weight is kept as panels `[ceil(out / 32), in, 32]` only."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Lay out `weight` `[out, in]`; the original is not kept."""
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self._panels = _as_panels(weight.detach().numpy())
        self._bias = np.zeros(-(-self.out_features // PANEL) * PANEL, np.float32)
        if bias is not None:
            self._bias[: self.out_features] = bias.detach().numpy()

    def forward(self, x: Tensor) -> Tensor:
        """`[..., in_features] -> [..., out_features]`."""
        rows = x.contiguous().view(-1).numpy()
        result = torch.from_numpy(_multiply(team(), n_threads(), rows, self._panels, self._bias))
        result = result.view(*x.shape[:-1], -1)
        return result if result.shape[-1] == self.out_features else result[..., : self.out_features].contiguous()

    def rows(self, rows: Tensor) -> StableLinear:
        """Return a linear of some of the outputs, `[k]` of them, with the same bits."""
        panel, column = np.divmod(rows.numpy(), PANEL)
        return StableLinear(
            torch.from_numpy(self._panels[panel, :, column]), torch.from_numpy(self._bias[rows.numpy()])
        )

    def extra_repr(self) -> str:
        """Shape, as `nn.Linear` prints its own."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def _as_panels(weight: FloatArray) -> FloatArray:
    n_out, n_in = weight.shape
    n_panels = -(-n_out // PANEL)
    size = n_panels * PANEL * n_in
    memory: NDArray[np.uint8] = np.zeros(size * weight.itemsize + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    panels = memory[start : start + size * weight.itemsize].view(np.float32).reshape(n_panels, n_in, PANEL)
    for panel in range(n_panels):
        columns = weight[panel * PANEL : (panel + 1) * PANEL]
        panels[panel, :, : len(columns)] = columns.T
    return panels


@njit(cache=True, nogil=True)
def _multiply_block(
    rows: FloatArray, first: int, last: int, panels: FloatArray, panel: int, inner: int, upcoming: int,
    result: FloatArray, width: int,
) -> None:  # fmt: skip
    """Rows `first .. last - 1` times one panel, fetching panel `upcoming` meanwhile."""
    n_blocks = (last - first + MOST_ROWS - 1) // MOST_ROWS
    step = (PANEL + n_blocks - 1) // n_blocks  # every block of rows fetches its share of a segment
    n_chains = (inner + _LONGEST_CHAIN - 1) // _LONGEST_CHAIN
    for chain in range(n_chains):
        start, end = inner * chain // n_chains, inner * (chain + 1) // n_chains
        length, ahead = end - start, (upcoming * inner + start) * PANEL
        for block in range(n_blocks):
            low = first + (last - first) * block // n_blocks
            high = first + (last - first) * (block + 1) // n_blocks
            multiply_add(
                high - low, length, rows, low * inner + start, inner, panels, (panel * inner + start) * PANEL,
                result, low * width + panel * PANEL, width, ahead + block * step * length, step,
            )  # fmt: skip


@njit(cache=True, nogil=True)
def _multiply_tasks(
    counter: NDArray[np.int64], rows: FloatArray, n_rows: int, n_chunks: int, panels: FloatArray, inner: int,
    bias: FloatArray, result: FloatArray,
) -> None:  # fmt: skip
    n_tasks = bias.size // PANEL * n_chunks
    upcoming = take_task(counter)
    while upcoming < n_tasks:
        task, upcoming = upcoming, take_task(counter)
        panel, chunk = task // n_chunks, task % n_chunks
        first, last = n_rows * chunk // n_chunks, n_rows * (chunk + 1) // n_chunks
        for row in range(first, last):
            for column in range(panel * PANEL, (panel + 1) * PANEL):
                result[row * bias.size + column] = bias[column]
        _multiply_block(rows, first, last, panels, panel, inner, upcoming // n_chunks, result, bias.size)


@njit(cache=True, nogil=True)
def _multiply(
    control: NDArray[np.int64], n_threads: int, rows: FloatArray, panels: FloatArray, bias: FloatArray
) -> FloatArray:
    """Flat `[R, in]` times panels, plus bias: flat `[R, bias.size]`."""
    inner = panels.shape[1]
    n_rows = rows.size // inner
    result = np.empty(n_rows * bias.size, np.float32)
    most_chunks = (n_rows + MOST_ROWS - 1) // MOST_ROWS
    n_chunks = max(1, min(most_chunks, _TASKS_A_THREAD * n_threads // panels.shape[0]))
    counter = np.zeros(1, np.int64)
    arguments = (counter, rows, n_rows, n_chunks, panels.reshape(-1), inner, bias, result)
    on_every_thread(control, n_threads, _multiply_tasks, arguments)
    return result
