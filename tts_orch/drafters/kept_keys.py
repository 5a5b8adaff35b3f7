"""Keys and values that a network has computed for committed tokens, of one trajectory, and of texts that others may share."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tts_orch.drafters.draft_network import Layers
from tts_orch.records import IntArray

__all__ = ["KeptKeys", "SharedPrefixes", "padded"]


class KeptKeys:
    """Rows of one trajectory; there is no way to change a row, so prefixes are shared without a copy."""

    def __init__(self, stacked: Tensor | None = None, n_rows: int = 0) -> None:
        self._stacked = stacked  # [2 * layers, kv_heads, capacity, head_dim]
        self.n_rows = n_rows

    def prefix(self, n_rows: int) -> KeptKeys:
        """Return the first rows; what is appended to it is written elsewhere."""
        return KeptKeys(None if self._stacked is None else self._stacked[:, :, :n_rows], n_rows)

    def append(self, layers: Layers, text: int, columns: slice) -> None:
        """Take rows from a batch: some columns of text number `text`."""
        new = torch.stack([part[text, :, columns] for layer in layers for part in layer])
        n_rows = self.n_rows + new.shape[2]
        if self._stacked is None or self._stacked.shape[2] < n_rows:
            grown = new.new_empty(*new.shape[:2], 2 * n_rows, new.shape[3])
            if self._stacked is not None:
                grown[:, :, : self.n_rows] = self._stacked[:, :, : self.n_rows]
            self._stacked = grown
        self._stacked[:, :, self.n_rows : n_rows] = new
        self.n_rows = n_rows

    def copy_to(self, batch: Tensor) -> None:
        """Write all rows to the beginning of `batch`, `[2 * layers, kv_heads, S, head_dim]`."""
        if self._stacked is not None:
            batch[:, :, : self.n_rows] = self._stacked[:, :, : self.n_rows]

    def new_batch(self, n_texts: int, n_columns: int) -> Tensor | None:
        """Return zeros `[2 * layers, n_texts, kv_heads, n_columns, head_dim]`, None where nothing tells their shape."""
        if self._stacked is None:
            return None
        n_parts, n_heads, _, width = self._stacked.shape
        return self._stacked.new_zeros(n_parts, n_texts, n_heads, n_columns, width)


def padded(texts: Sequence[KeptKeys]) -> Layers:
    """Return the rows of several texts side by side, padded behind to those of the longest."""
    n_columns = max(text.n_rows for text in texts)
    batch = max(texts, key=lambda text: text.n_rows).new_batch(len(texts), n_columns)
    if batch is None or not n_columns:
        return []
    for number, text in enumerate(texts):
        text.copy_to(batch[:, number])
    return list(zip(batch[::2], batch[1::2], strict=True))


class SharedPrefixes:
    """Texts whose keys were computed lately, for trajectories that begin like one of them.

    Args:
        n_texts: how many are remembered.
    """

    def __init__(self, n_texts: int) -> None:
        self._texts: deque[tuple[IntArray, KeptKeys]] = deque(maxlen=n_texts)

    def remember(self, token_ids: IntArray, keys: KeptKeys) -> None:
        """Remember a text whose tokens are `token_ids` `[n]`."""
        if any(np.array_equal(known, token_ids) for known, _ in self._texts):
            return
        self._texts.append((token_ids.copy(), keys.prefix(keys.n_rows)))

    def find(self, token_ids: IntArray, first_token: int) -> KeptKeys:
        """Return the rows of the longest beginning of `token_ids` that a remembered text shares.

        Args:
            token_ids: `[n]`.
            first_token: the first token that has a row.
        """
        best = KeptKeys()
        for known, keys in self._texts:
            n_rows = min(_n_common(known, token_ids) - first_token, keys.n_rows)
            if n_rows > best.n_rows:
                best = keys.prefix(n_rows)
        return best


def _n_common(first: IntArray, second: IntArray) -> int:
    n = min(len(first), len(second))
    different = first[:n] != second[:n]
    return int(different.argmax()) if different.any() else n
