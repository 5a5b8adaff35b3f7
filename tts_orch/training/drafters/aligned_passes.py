"""Passes of a head over texts in which it reads what it predicted itself, as in a draft.

In pass j every position is the j-th token of a draft of its own: it reads the feature that pass j - 1 predicted for it; the
j - 1 positions before it are the draft so far, read as passes 2 to j - 1 and the root left them, and all older ones are the
target's. The first pass alone is EAGLE-2's training (arXiv 2406.16858), several are HASS's harmonised context alignment
(arXiv 2408.15766), and EAGLE-3's training-time test (arXiv 2503.01840), whose gradients flow back through all passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_layers import KeysAndValues

__all__ = ["aligned_mask", "aligned_passes"]


def aligned_passes(head: DraftHead, embeddings: Tensor, features: Tensor, n_passes: int) -> Iterator[Tensor]:
    """Yield the predictions of every pass, `[B, T, d]` features of positions `t + 1`, for EAGLE-3 the head's states.

    Args:
        head: predicts.
        embeddings: `[B, T, d]` of tokens `t + 1`.
        features: `[B, T, layers * d]` of the target at positions `t`.
        n_passes: how many; but for EAGLE-3 no gradient flows from a pass through its inputs into the one before.
    """
    if isinstance(head, Eagle3Head):
        features = head.project(features).to(embeddings.dtype)
    n_rows = embeddings.shape[1]
    positions = torch.arange(n_rows, device=embeddings.device)[None]
    inputs = features
    past: KeysAndValues | None = None
    for number in range(1, n_passes + 1):
        mask = aligned_mask(n_rows, number, embeddings.device)[None, None]
        predicted, past = head(embeddings, inputs, positions, mask, past)
        yield predicted
        inputs = torch.cat([features[:, :1], predicted[:, :-1].to(features.dtype)], dim=1)
        inputs = inputs if isinstance(head, Eagle3Head) else inputs.detach()


def aligned_mask(n_rows: int, number: int, device: torch.device) -> Tensor:
    """Return `[n_rows, number * n_rows]`, true where a row of pass `number` reads a key of the passes up to it, in their order.

    Of the first pass it reads the positions before its draft, and of pass i the position that is the i-th of its draft.
    """
    distance = torch.arange(n_rows, device=device)[:, None] - torch.arange(n_rows, device=device)
    drafted = [distance == number - i for i in range(2, number + 1)]
    return torch.cat([distance >= number - 1, *drafted], dim=1)
