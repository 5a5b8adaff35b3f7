"""`OutputLayer`: from a model's final hidden states to its logits, for whoever has the states and wants the law behind them."""

from __future__ import annotations

from copy import copy

import torch
from torch import nn
from transformers import PreTrainedModel

from tts_orch.engine.stable_linear import StableLinear
from tts_orch.errors import TargetError

__all__ = ["OutputLayer"]


class OutputLayer:
    """The output layer of a causal model with what the model does to its logits: a scale, a soft cap.

    Args:
        model: with an output layer.
        name: how messages call it.

    Raises:
        TargetError: it has none.
    """

    def __init__(self, model: PreTrainedModel, name: str = "the model") -> None:
        layer = model.get_output_embeddings()
        if layer is None:
            raise TargetError(f"{name}: has no output layer; take a causal language model")
        text = model.config.get_text_config()
        self._layer = layer
        self._scale = float(getattr(text, "logit_scale", None) or 1.0) / float(
            getattr(text, "logits_scaling", None) or 1.0
        )
        self._soft_cap: float | None = getattr(text, "final_logit_softcapping", None)
        self._name = name

    @classmethod
    def checked(cls, model: PreTrainedModel, name: str = "the model") -> OutputLayer:
        """Return the output layer of a model as transformers loads it, compared with what the model itself says.

        Raises:
            TargetError: it has none, or does something to its logits that is not known here.
        """
        layer = cls(model, name)
        layer._hold_against(model, name)
        return layer

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """Return `[..., V]` logits of final hidden states `[..., d]`, padded rows of the vocabulary among them."""
        logits: torch.Tensor = self._layer(states)
        if self._scale != 1:
            logits = logits * self._scale
        return logits if self._soft_cap is None else torch.tanh(logits / self._soft_cap) * self._soft_cap

    @torch.no_grad()
    def of_tokens(self, token_ids: torch.Tensor) -> OutputLayer:
        """Return the layer whose columns are those of some tokens `[k]`; its rows are copied once, side by side.

        Raises:
            TargetError: the layer is not one whose rows can be chosen.
        """
        if type(self._layer) not in (nn.Linear, StableLinear):  # others hold their weights in their own ways
            raise TargetError(
                f"{self._name}: rows of its output layer ({type(self._layer).__name__}) cannot be chosen; take a draft head "
                "of all tokens"
            )
        chosen = copy(self)
        chosen._layer = _rows(self._layer, token_ids)
        return chosen

    @torch.inference_mode()
    def _hold_against(self, model: PreTrainedModel, name: str) -> None:
        """Refuse a model whose own logits are others: a law that is a little wrong would never be noticed."""
        tokens = torch.arange(4, device=next(model.parameters()).device)[None]
        output = model(input_ids=tokens, output_hidden_states=True, use_cache=False)
        if not torch.allclose(self(output.hidden_states[-1]), output.logits, rtol=1e-2, atol=1e-2):
            raise TargetError(
                f"{name}: its logits are not those of its output layer, a scale and a soft cap; take another model"
            )


def _rows(layer: nn.Linear | StableLinear, rows: torch.Tensor) -> nn.Module:
    if isinstance(layer, StableLinear):
        return layer.rows(rows)
    chosen = nn.utils.skip_init(nn.Linear, layer.in_features, len(rows), bias=layer.bias is not None)
    rows = rows.to(layer.weight.device)
    chosen.weight = nn.Parameter(layer.weight[rows], requires_grad=False)
    if layer.bias is not None:
        chosen.bias = nn.Parameter(layer.bias[rows], requires_grad=False)
    return chosen
