"""Losses of draft heads: distance of features, cross-entropy against the target's law, and against its most probable tokens.

The logits of a prediction are needed for its log-normaliser alone; see `target_laws` for the rest.

Sources: EAGLE-2, arXiv 2406.16858; HASS, arXiv 2408.15766.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import smooth_l1_loss

from tts_orch.training.drafters.target_laws import Laws

__all__ = ["feature_loss", "law_loss", "log_normalisers", "most_probable"]

_ROWS: Final = 128  # of logits at a time: what fits the caches of a CPU


def feature_loss(predicted: Tensor, targets: Tensor) -> Tensor:
    """Return the distance of features `[n, d]` from the target's, summed over positions."""
    return smooth_l1_loss(predicted, targets, reduction="none").mean(dim=-1).sum()


def law_loss(predicted: Tensor, laws: Laws, output: Tensor, weight: float, top_weight: float) -> Tensor:
    """Return the cross-entropy against laws, and over their most probable tokens, summed over positions.

    Args:
        predicted: `[n, d]` float32 features.
        laws: of the target, at the same positions.
        output: `[k, d]` rows of the LM head of the laws' tokens; their type is that of the matrix products.
        weight: of the cross-entropy.
        top_weight: of that over the most probable tokens.
    """
    normalisers = log_normalisers(predicted, output)
    loss = weight * (normalisers - (laws.expected * predicted).sum(dim=-1))
    if top_weight:
        rows = output[laws.top_ids].to(predicted.dtype)
        top_row = (laws.top_probs[..., None] * rows).sum(dim=-2)
        loss = loss + top_weight * (laws.top_probs.sum(dim=-1) * normalisers - (top_row * predicted).sum(dim=-1))
    return loss.sum()


def log_normalisers(features: Tensor, output: Tensor) -> Tensor:
    """Return the log-normalisers `[n]` of the laws that belong to features `[n, d]`, with a gradient for the features."""
    normalisers: Tensor = _LogNormalisers.apply(features, output)  # type: ignore[no-untyped-call]
    return normalisers


def most_probable(features: Tensor, output: Tensor) -> Tensor:
    """Return the most probable token of each feature, `[n]`."""
    return torch.cat([(part.to(output.dtype) @ output.T).argmax(dim=-1) for part in features.split(_ROWS)])


class _LogNormalisers(torch.autograd.Function):
    """Computes the gradient with the value, a few rows at a time, so that nobody keeps logits."""

    @staticmethod
    def forward(context: Any, features: Tensor, output: Tensor) -> Tensor:
        values, gradients = [], []
        for part in features.detach().split(_ROWS):
            logits = (part.to(output.dtype) @ output.T).float()
            largest = logits.amax(dim=-1, keepdim=True)
            weights = logits.sub_(largest).exp_()
            total = weights.sum(dim=-1, keepdim=True)
            values.append((largest + total.log()).squeeze(-1))
            gradients.append((weights.to(output.dtype) @ output).float() / total)
        context.save_for_backward(torch.cat(gradients))
        return torch.cat(values)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Tensor, None]:
        (of_features,) = context.saved_tensors
        return gradients[0][:, None] * of_features, None
