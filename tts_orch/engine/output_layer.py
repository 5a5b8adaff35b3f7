"""`OutputLayer`: from a model's final hidden states to its logits, for whoever has the states and wants the law behind them."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

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

    @torch.inference_mode()
    def _hold_against(self, model: PreTrainedModel, name: str) -> None:
        """Refuse a model whose own logits are others: a law that is a little wrong would never be noticed."""
        tokens = torch.arange(4, device=next(model.parameters()).device)[None]
        output = model(input_ids=tokens, output_hidden_states=True, use_cache=False)
        if not torch.allclose(self(output.hidden_states[-1]), output.logits, rtol=1e-2, atol=1e-2):
            raise TargetError(
                f"{name}: its logits are not those of its output layer, a scale and a soft cap; take another model"
            )
