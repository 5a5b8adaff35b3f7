"""What a drafter needs of a network: rows of tokens in, the likeliest next tokens out."""

from __future__ import annotations

from typing import Protocol, TypeAlias

import numpy as np
import torch
from torch import Tensor

from tts_orch.engine.laws import raw_statistics
from tts_orch.records import FloatArray, IntArray
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["HeadNetwork", "Layers", "likeliest"]

Layers: TypeAlias = list[tuple[Tensor, Tensor]]
"""Keys and values `[B, kv_heads, S, head_dim]` of each layer; no layers at all if S is 0."""


class HeadNetwork(Protocol):
    """A network that continues trajectories, token by token.

    Attributes:
        feature_layers: hidden states of the target that it reads, see `Drafter.feature_layers`.
        vocabulary: tokens of the columns of its logits; None where these are the first of the target's.
        vocabulary_size: columns of its logits.
        max_context: longest trajectory, in tokens, that it continues.
        first_token: of a trajectory that has a row; 1 where a row reads a token together with the feature before it.
        device: and
        dtype: of its weights.
    """

    feature_layers: tuple[int, ...]
    vocabulary: DraftVocabulary | None
    vocabulary_size: int
    max_context: int
    first_token: int
    device: torch.device
    dtype: torch.dtype

    def project(self, features: Tensor) -> Tensor:
        """Return `[..., d]` what rows read of the target's hidden states `[..., feature layers * target's d]`."""
        ...

    def read(
        self, token_ids: Tensor, features: Tensor | None, positions: Tensor, mask: Tensor, past: Layers
    ) -> tuple[Tensor, Layers]:
        """Compute rows.

        Args:
            token_ids: `[B, T]`.
            features: `[B, T, d]` of the position before each token: the target's, projected, or for drafts what the row
                before it returned; None for a network without features.
            positions: `[B, T]` numbers of the rows, counted from 0 for a trajectory's first.
            mask: `[B, 1, T, S]`, true where a row reads a key, those of `past` first; each row reads one at least.
            past: keys and values to begin with.

        Returns:
            `[B, T, d]` states from which `logits` tells what follows, and all keys and values, `S` of them.
        """
        ...

    def logits(self, states: Tensor) -> Tensor:
        """Return `[R, vocabulary_size]` logits of the token behind rows with these states `[R, d]`."""
        ...


def likeliest(network: HeadNetwork, states: Tensor, n: int) -> tuple[IntArray, FloatArray]:
    """Return `[R, n]` tokens of the target and log-probabilities of the likeliest ones behind rows, the likeliest first."""
    statistics = raw_statistics(network.logits(states), n)
    if network.vocabulary is None:
        return statistics.top_ids, statistics.top_log_probs
    return network.vocabulary.ids[statistics.top_ids].astype(np.int32), statistics.top_log_probs
