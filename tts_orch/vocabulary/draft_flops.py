"""Operations of drafting one token, by the size of the draft vocabulary (arXiv 2603.05210)."""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from tts_orch.drafters.head_config import HeadConfig

__all__ = ["DraftFlops", "draft_flops"]


class DraftFlops(NamedTuple):
    """Floating-point operations of the matrix products of a head, two for a multiplication with its addition.

    Attributes:
        projection: of the features to the head's width.
        attention: queries, keys, values and output; not the scores, which depend on the length of the text.
        mlp: the gated one.
        vocabulary_row: of the LM head, for one token of the draft vocabulary.
    """

    projection: int
    attention: int
    mlp: int
    vocabulary_row: int

    @overload
    def total(self, size: int) -> int: ...
    @overload
    def total(self, size: NDArray[np.int64]) -> NDArray[np.int64]: ...
    def total(self, size: int | NDArray[np.int64]) -> int | NDArray[np.int64]:
        """Return all operations with a draft vocabulary of some size, or of several ones."""
        return self.projection + self.attention + self.mlp + self.vocabulary_row * size


def draft_flops(config: HeadConfig) -> DraftFlops:
    """Return the operations of a head.

    EAGLE-3 projects its features alone, and its attention reads them beside the embedding, twice as wide; EAGLE-2 and HASS
    project both together.
    """
    width, queries = config.hidden_size, config.num_attention_heads * config.head_dim
    keys = config.num_key_value_heads * config.head_dim
    is_eagle3 = config.architecture == "eagle3"
    inputs = len(config.feature_layers) if is_eagle3 else 2
    attention_width = 2 * width if is_eagle3 else width
    return DraftFlops(
        projection=2 * inputs * config.feature_size * width,
        attention=2 * attention_width * (queries + 2 * keys) + 2 * queries * width,
        mlp=2 * 3 * width * config.intermediate_size,
        vocabulary_row=2 * width,
    )
