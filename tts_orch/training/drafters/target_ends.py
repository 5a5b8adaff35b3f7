"""The target's embedding and the rows of its LM head that a head learns from."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tts_orch.errors import ConfigError
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["TargetEnds", "target_ends"]


class TargetEnds(NamedTuple):
    """What a head shares with its target.

    Attributes:
        embedding: `[V, d]` input embeddings.
        output: `[k, d]` rows of the LM head, of the tokens that the head may propose; their type is that of matrix products.
        columns: `[V]` the row of each token among these, -1 for a token that has none.
    """

    embedding: Tensor
    output: Tensor
    columns: Tensor

    @property
    def device(self) -> torch.device:
        """Where all are."""
        return self.output.device

    @property
    def is_trimmed(self) -> bool:
        """Whether there are tokens that the head may not propose."""
        return len(self.output) < len(self.columns)

    def autocast(self) -> torch.autocast:
        """Return a context in which matrix products are of that type."""
        dtype = self.output.dtype
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype == torch.bfloat16)


def target_ends(target: FrozenTarget, vocabulary: DraftVocabulary | None, dtype: torch.dtype) -> TargetEnds:
    """Return the ends of a target, for heads of a draft vocabulary.

    Args:
        target: whose ends they are.
        vocabulary: tokens that a head may propose; None for all.
        dtype: of matrix products.

    Raises:
        ConfigError: the vocabulary has tokens that the target does not have.
    """
    n_tokens, device = len(target.output), target.output.device
    if vocabulary is None:
        return TargetEnds(target.embedding, target.output.to(dtype), torch.arange(n_tokens, device=device))
    if vocabulary.ids[-1] >= n_tokens:
        raise ConfigError(
            f"vocabulary: token {vocabulary.ids[-1]} is none of the target's {n_tokens}; give a vocabulary of this target"
        )
    ids = torch.from_numpy(vocabulary.ids).to(device)
    columns = torch.full((n_tokens,), -1, device=device)
    columns[ids] = torch.arange(len(ids), device=device)
    return TargetEnds(target.embedding, target.output[ids].to(dtype), columns)
