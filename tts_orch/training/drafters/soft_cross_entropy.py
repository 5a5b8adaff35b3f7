"""Cross-entropy of a head's own LM head against the target's law, over the tokens that the head may propose.

Neither law is ever there for more than a few positions: where logits are, their gradients are computed too.

Source: EAGLE-3, arXiv 2503.01840.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

__all__ = ["soft_cross_entropy"]

_POSITIONS: Final = 128  # whose logits are there at a time, those of all passes


def soft_cross_entropy(states: Tensor, rows: Tensor, targets: Tensor, output: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sum over positions and passes of `- sum_x p(x) log q(x)`, with gradients for states and rows.

    Args:
        states: `[passes, n, d]` what the head's LM head reads.
        rows: `[k, d]` of the head's LM head.
        targets: `[n, d]` last hidden states of the target at the same positions.
        output: `[k, d]` the target's rows of the same tokens; their type is that of the matrix products. `p` is normalised
            over these tokens alone.
        weights: `[passes]`.
    """
    loss: Tensor = _SoftCrossEntropy.apply(states, rows, targets, output, weights)  # type: ignore[no-untyped-call]
    return loss


class _SoftCrossEntropy(torch.autograd.Function):
    """Computes the gradients with the value, a few positions at a time."""

    @staticmethod
    def forward(context: Any, states: Tensor, rows: Tensor, targets: Tensor, output: Tensor, weights: Tensor) -> Tensor:
        loss = weights.new_zeros(())
        of_states, of_rows = torch.empty_like(states), torch.zeros_like(rows)
        cast_rows = rows.detach().to(output.dtype)
        for first in range(0, states.shape[1], _POSITIONS):
            part = slice(first, first + _POSITIONS)
            read = states.detach()[:, part].to(output.dtype)
            probs = torch.softmax((targets[part].to(output.dtype) @ output.T).float(), dim=-1)
            log_probs = torch.log_softmax((read @ cast_rows.T).float(), dim=-1)
            loss -= weights @ (log_probs * probs).sum(dim=(1, 2))
            difference = (log_probs.exp_() - probs).mul_(weights[:, None, None]).to(output.dtype)
            of_states[:, part] = (difference @ cast_rows).to(states.dtype)
            of_rows += difference.flatten(0, 1).T @ read.flatten(0, 1)
        context.save_for_backward(of_states, of_rows)
        return loss

    @staticmethod
    def backward(context: Any, *gradients: Any) -> tuple[Tensor, Tensor, None, None, None]:
        of_states, of_rows = context.saved_tensors
        return gradients[0] * of_states, gradients[0] * of_rows, None, None, None
