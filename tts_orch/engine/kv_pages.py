"""Key and value pages of 64 positions: the tensors only. Who owns which page is decided elsewhere.

One page holds all layers, so that it is copied as one row and memory is touched only when a page is used. Two layouts:
`canonical` (float32 on the CPU) keeps a tile per layer and head, keys as `[head_dim, 64]` and values as
`[64, head_dim]`, for the bit-stable kernel; `plain` (any device and dtype) keeps a row per position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts_orch.engine.packing import PAGE
from tts_orch.engine.page_kernels import move_positions, write_rows
from tts_orch.engine.parallel import team
from tts_orch.engine.threads import n_threads
from tts_orch.records import IntArray

__all__ = ["KVPages", "Layout"]

Layout = Literal["canonical", "plain"]
_ALIGNMENT = 64  # bytes; vector loads of a tile never straddle a cache line


def _lazy_zeros(n: int, dtype: torch.dtype) -> Tensor:
    """Zeros on the CPU whose memory the system provides at first touch."""
    n_bytes = n * dtype.itemsize
    raw: NDArray[np.uint8] = np.zeros(n_bytes + _ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return torch.from_numpy(raw[start : start + n_bytes]).view(dtype)


class KVPages:
    """Pages of every layer.

    Attributes:
        keys, values: a layer's view each; canonical `[n_pages, kv_heads, head_dim, 64]` and
            `[n_pages, kv_heads, 64, head_dim]`, plain `[n_pages, 64, kv_heads, head_dim]` both.
        pages: canonical layout only: all pages as one array `[n_pages, elements]`.
    """

    def __init__(
        self,
        n_layers: int,
        kv_heads: Sequence[int],
        head_dims: Sequence[int],
        n_pages: int,
        *,
        layout: Layout = "canonical",
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        """Reserve `n_pages` pages for layers of `kv_heads[layer]` heads of `head_dims[layer]`.

        Raises:
            ValueError: the lists do not have `n_layers` entries, or the canonical layout is not float32 on the CPU.
        """
        self.device = torch.device(device)
        if not len(kv_heads) == len(head_dims) == n_layers:
            raise ValueError(f"{n_layers} layers need as many kv_heads and head_dims")
        if layout == "canonical" and (dtype != torch.float32 or self.device.type != "cpu"):
            raise ValueError("the canonical layout is float32 on the CPU")
        self.layout = layout
        self.dtype = dtype
        self.n_pages = n_pages
        self._kv_heads = np.asarray(kv_heads, dtype=np.int64)
        self._head_dims = np.asarray(head_dims, dtype=np.int64)
        self._widths = self._kv_heads * self._head_dims  # a position's keys in one layer
        self._starts = np.concatenate(([0], np.cumsum(2 * self._widths)))  # of a layer, in widths
        size = n_pages * PAGE * int(self._starts[-1])
        if self.device.type == "cpu":
            storage = _lazy_zeros(size, dtype)
        else:
            storage = torch.zeros(size, dtype=dtype, device=self.device)
        self._storage = storage.view(n_pages, -1)
        self.keys = [self._view(layer, is_value=False) for layer in range(n_layers)]
        self.values = [self._view(layer, is_value=True) for layer in range(n_layers)]
        if layout == "canonical":
            self.pages: NDArray[np.float32] = self._storage.numpy()

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page over all layers."""
        return PAGE * int(self._starts[-1]) * self.dtype.itemsize

    def layer_start(self, layer: int) -> int:
        """Element of a page `[elements]` at which the keys of a layer begin; its values follow."""
        return PAGE * int(self._starts[layer])

    def write(self, layer: int, key: Tensor, value: Tensor, write_page: IntArray, write_offset: IntArray) -> None:
        """Put the keys and values `[R, kv_heads, head_dim]` of `R` rows at `(write_page, write_offset)` (`[R]` each).

        Raises:
            ValueError: the layer's pages are for other sizes.
        """
        size = (int(self._kv_heads[layer]), int(self._head_dims[layer]))
        if not key.shape[1:] == value.shape[1:] == size:
            raise ValueError(f"layer {layer} has keys {(*key.shape[1:],)} and values {(*value.shape[1:],)}, not {size}")
        if self.layout == "canonical":
            write_rows(
                team(),
                n_threads(),
                key.contiguous().numpy(),
                value.contiguous().numpy(),
                self.pages,
                self.layer_start(layer),
                write_page,
                write_offset,
            )
            return
        place = (self._indices(write_page), self._indices(write_offset))
        self.keys[layer][place] = key
        self.values[layer][place] = value

    def copy_pages(self, source: IntArray, target: IntArray) -> None:
        """Copy whole pages (copy on write); no target may also be a source."""
        self._storage[self._indices(target)] = self._storage[self._indices(source)]

    def move(
        self, source_page: IntArray, source_offset: IntArray, target_page: IntArray, target_offset: IntArray
    ) -> None:
        """Copy the keys and values of single positions in every layer (`[M]` each); no target may also be a source."""
        if self.layout == "canonical":
            move_positions(
                team(),
                n_threads(),
                self.pages,
                self._starts * PAGE,
                self._kv_heads,
                self._head_dims,
                source_page,
                source_offset,
                target_page,
                target_offset,
            )
            return
        rows = self._storage.view(self.n_pages, PAGE, -1)
        source = (self._indices(source_page), self._indices(source_offset))
        rows[self._indices(target_page), self._indices(target_offset)] = rows[source]

    def _view(self, layer: int, *, is_value: bool) -> Tensor:
        heads, head_dim = int(self._kv_heads[layer]), int(self._head_dims[layer])
        start, width = int(self._starts[layer]), heads * head_dim
        start += width * is_value
        if self.layout == "plain":
            rows = self._storage.view(self.n_pages, PAGE, -1)[:, :, start : start + width]
            return rows.unflatten(-1, (heads, head_dim))
        tile = (PAGE, head_dim) if is_value else (head_dim, PAGE)
        return self._storage[:, start * PAGE : (start + width) * PAGE].unflatten(-1, (heads, *tile))

    def _indices(self, numbers: IntArray) -> Tensor:
        return torch.as_tensor(numbers, dtype=torch.int64).to(self.device, non_blocking=True)
