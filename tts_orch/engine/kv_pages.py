"""Pages of 64 positions with keys and values, and features if wanted: the tensors only. Who owns which is decided elsewhere.

One page holds all layers, so that it is copied as one row and memory is touched only when a page is used. Two layouts:
`canonical` (float32 on the CPU) keeps a tile per layer and head, keys as `[head_dim, 64]` and values as
`[64, head_dim]`, for the bit-stable kernel; `plain` (any device and dtype) keeps a row per position. Features are hidden
states of the target that a drafter reads. They stand beside the keys, so whoever finds a prefix cached, goes on from it or
computes it again has its features too.
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


def _zeros(n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return zeros; on the CPU the system provides their memory at first touch."""
    if device.type != "cpu":
        return torch.zeros(n, dtype=dtype, device=device)
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
        feature_layers: whose hidden states are kept, as a drafter numbers them.
        features: `[n_pages, 64, feature_width]`, None if none are kept.
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
        feature_layers: Sequence[int] = (),
        hidden_size: int = 0,
    ) -> None:
        """Reserve `n_pages` pages for layers of `kv_heads[layer]` heads of `head_dims[layer]`.

        Beside them, for features of `feature_layers`, each `hidden_size` wide.

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
        self._storage = _zeros(size, dtype, self.device).view(n_pages, -1)
        self.keys = [self._view(layer, is_value=False) for layer in range(n_layers)]
        self.values = [self._view(layer, is_value=True) for layer in range(n_layers)]
        if layout == "canonical":
            self.pages: NDArray[np.float32] = self._storage.numpy()
        self.feature_layers = tuple(feature_layers)
        self.feature_width = len(self.feature_layers) * hidden_size
        self.features: Tensor | None = None
        if self.feature_width:
            features = _zeros(n_pages * PAGE * self.feature_width, dtype, self.device)
            self.features = features.view(n_pages, PAGE, self.feature_width)

    @property
    def bytes_per_page(self) -> int:
        """Bytes of one page over all layers, features included."""
        return PAGE * (int(self._starts[-1]) + self.feature_width) * self.dtype.itemsize

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

    def write_features(self, rows: Tensor, write_page: IntArray, write_offset: IntArray) -> None:
        """Put the features `[R, feature_width]` of `R` rows at `(write_page, write_offset)` (`[R]` each)."""
        self._features[self._indices(write_page), self._indices(write_offset)] = rows

    def read_features(self, pages: Sequence[int], first: int, last: int) -> Tensor:
        """Return a copy `[last - first, feature_width]` of the features of positions `first .. last - 1` on these pages."""
        positions = np.arange(first, last)
        page = np.asarray(pages, np.int64)[positions // PAGE]
        return self._features[self._indices(page), self._indices(positions % PAGE)]

    @property
    def _features(self) -> Tensor:
        if self.features is None:
            raise ValueError("these pages keep no features")
        return self.features

    def copy_pages(self, source: IntArray, target: IntArray) -> None:
        """Copy whole pages (copy on write); no target may also be a source."""
        of_source, of_target = self._indices(source), self._indices(target)
        self._storage[of_target] = self._storage[of_source]
        if self.features is not None:
            self.features[of_target] = self.features[of_source]

    def move(
        self, source_page: IntArray, source_offset: IntArray, target_page: IntArray, target_offset: IntArray
    ) -> None:
        """Copy all that is kept of single positions (`[M]` each); no target may also be a source."""
        places = (source_page, source_offset, target_page, target_offset)
        if self.features is not None:
            self._move_rows(self.features, *places)
        if self.layout == "plain":
            self._move_rows(self._storage.view(self.n_pages, PAGE, -1), *places)
        else:
            move_positions(
                team(),
                n_threads(),
                self.pages,
                self._starts * PAGE,
                self._kv_heads,
                self._head_dims,
                *places,
            )

    def _move_rows(
        self,
        rows: Tensor,
        source_page: IntArray,
        source_offset: IntArray,
        target_page: IntArray,
        target_offset: IntArray,
    ) -> None:
        source = rows[self._indices(source_page), self._indices(source_offset)]
        rows[self._indices(target_page), self._indices(target_offset)] = source

    def _view(self, layer: int, *, is_value: bool) -> Tensor:
        heads, head_dim = int(self._kv_heads[layer]), int(self._head_dims[layer])
        start, width = int(self._starts[layer]), heads * head_dim
        start += width * is_value
        if self.layout == "plain":
            rows = self._storage.view(self.n_pages, PAGE, -1)[:, :, start : start + width]
            return rows.unflatten(-1, (heads, head_dim))
        tile = (PAGE, head_dim) if is_value else (head_dim, PAGE)
        return self._storage[:, start * PAGE : (start + width) * PAGE].unflatten(-1, (heads, *tile))

    def _indices(self, numbers: NDArray[np.integer]) -> Tensor:
        return torch.as_tensor(numbers, dtype=torch.int64).to(self.device, non_blocking=True)
