"""Copies of a target's parts that come with published heads: whether they are copies of this target's."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from tts_orch.drafters.target_facts import TargetFacts

__all__ = ["is_embedding_of", "is_lm_head_of"]

_COMPARED_ROWS: Final = 4096
"""Rows of an embedding that are compared, spread over all of it."""


def is_embedding_of(target: TargetFacts, embedding: Tensor) -> bool:
    """Tell whether `[V, d]` is the target's input embedding."""
    if embedding.shape != target.embedding.shape:
        return False
    rows = torch.arange(0, len(embedding), max(1, len(embedding) // _COMPARED_ROWS))
    return _are_close(embedding[rows], target.embedding[rows.to(target.device)])


def is_lm_head_of(target: TargetFacts, lm_head: Tensor) -> bool:
    """Tell whether `[V, d]` is the target's LM head, by its logits of random states."""
    states = torch.randn(4, target.hidden_size, generator=torch.Generator().manual_seed(0))
    logits = target.head(states.to(target.device, target.dtype))
    n_columns = logits.shape[-1]
    if lm_head.shape[1] != target.hidden_size or len(lm_head) < n_columns:
        return False
    return _are_close(states @ lm_head[:n_columns].float().T, logits)


def _are_close(first: Tensor, second: Tensor) -> bool:
    """Compare numbers that may have been rounded to half precision."""
    second = second.float().cpu()
    return torch.allclose(first.float(), second, rtol=2e-2, atol=2e-2 * float(second.abs().mean()))
