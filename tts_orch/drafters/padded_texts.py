"""Several texts of different lengths in one batch: first their committed tokens are read, then drafts on top of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tts_orch.drafters.draft_network import HeadNetwork, Layers
from tts_orch.drafters.kept_keys import KeptKeys, padded
from tts_orch.records import IntArray

__all__ = ["PaddedTexts"]

_MOST_ROWS: Final = 2048
"""Committed rows of a pass, padding included: attention of all of them to long texts must fit into memory."""


class PaddedTexts:
    """Texts side by side, on top of what is kept of each.

    Columns of keys: first the kept ones, padded, then those of every `read_committed`, padded, then drafts.

    Args:
        network: reads them.
        kept: `[b]` rows that are there; what is read of a text is appended.
    """

    def __init__(self, network: HeadNetwork, kept: Sequence[KeptKeys]) -> None:
        self._network = network
        self._kept = kept
        self._n_rows = np.array([keys.n_rows for keys in kept])
        self._past: Layers = padded(kept)
        columns = np.arange(self._n_rows.max())
        self._is_committed: NDArray[np.bool_] = columns < self._n_rows[:, None]  # [b, columns]

    def read_committed(self, token_ids: Sequence[IntArray], features: Sequence[Tensor] | None) -> Tensor:
        """Read the next tokens of each text, at least one, and keep their keys.

        Args:
            token_ids: `[b]` texts of different lengths.
            features: `[b]` the target's hidden states before each of these tokens, `[n, layers * d]`; None if the network
                reads none.

        Returns:
            `[b, 1, d]` states at the last token of each.
        """
        sizes = np.array([len(tokens) for tokens in token_ids])
        last = torch.empty(0)
        most = max(1, _MOST_ROWS // len(sizes))
        for first in range(0, int(sizes.max()), most):
            chunks = np.clip(sizes - first, 0, most)
            states = self._read_chunk(
                [tokens[first : first + most] for tokens in token_ids],
                features and [rows[first : first + most] for rows in features],
            )
            ends = states[torch.arange(len(sizes)), torch.from_numpy(np.maximum(chunks - 1, 0))]
            has_rows = torch.from_numpy(chunks > 0).to(states.device)
            last = ends if first == 0 else torch.where(has_rows[:, None], ends, last)
        return last[:, None]

    def _read_chunk(self, token_ids: Sequence[IntArray], features: Sequence[Tensor] | None) -> Tensor:
        sizes = np.array([len(tokens) for tokens in token_ids])
        n_texts, n_new, n_past = len(sizes), int(sizes.max()), self._is_committed.shape[1]
        tokens = np.zeros((n_texts, n_new), np.int64)
        for row, own in zip(tokens, token_ids, strict=True):
            row[: len(own)] = own
        positions = self._n_rows[:, None] + np.arange(n_new)
        past = np.broadcast_to(self._is_committed[:, None], (n_texts, n_new, n_past))
        causal = np.broadcast_to(np.tri(n_new, dtype=bool), (n_texts, n_new, n_new))  # padding reads something too
        states = self._read(tokens, self._padded(features, n_new), positions, np.concatenate([past, causal], axis=2))
        for text, (keys, size) in enumerate(zip(self._kept, sizes.tolist(), strict=True)):
            if size:
                keys.append(self._past, text, slice(n_past, n_past + size))
        self._n_rows = self._n_rows + sizes
        self._is_committed = np.concatenate([self._is_committed, np.arange(n_new) < sizes[:, None]], axis=1)
        return states

    def read_drafts(self, token_ids: IntArray, states: Tensor, depth: int, is_ancestor: NDArray[np.bool_]) -> Tensor:
        """Read one level of draft nodes; their keys stay for the next level, and go with this object.

        Args:
            token_ids: `[b, w]` nodes of each text.
            states: `[b, w, d]` at their parents.
            depth: 1 for the children of the roots.
            is_ancestor: `[b, w, drafts]` which of all drafts read so far, these included, each node reads.

        Returns:
            `[b, w, d]` states at these nodes.
        """
        positions = np.broadcast_to(self._n_rows[:, None] + depth - 1, token_ids.shape)
        committed = np.broadcast_to(self._is_committed[:, None], (*token_ids.shape, self._is_committed.shape[1]))
        features = states if self._network.feature_layers else None
        return self._read(token_ids, features, positions, np.concatenate([committed, is_ancestor], axis=2))

    def _read(
        self,
        token_ids: NDArray[np.integer],
        features: Tensor | None,
        positions: NDArray[np.integer],
        mask: NDArray[np.bool_],
    ) -> Tensor:
        device = self._network.device
        positions = np.minimum(
            positions, self._network.max_context - 1
        )  # only padding is beyond, where some look rows up
        states, self._past = self._network.read(
            torch.from_numpy(token_ids.astype(np.int64)).to(device),
            features,
            torch.from_numpy(positions.astype(np.int64)).to(device),
            torch.from_numpy(mask[:, None]).to(device),
            self._past,
        )
        return states

    def _padded(self, features: Sequence[Tensor] | None, n_new: int) -> Tensor | None:
        if features is None:
            return None
        width = features[0].shape[1]
        rows = torch.zeros(len(features), n_new, width, dtype=self._network.dtype, device=self._network.device)
        for row, own in zip(rows, features, strict=True):
            row[: len(own)] = own
        return self._network.project(rows)
