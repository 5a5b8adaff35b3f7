"""A small language model of the target's vocabulary as a drafter."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from tts_orch.drafters.draft_network import Layers
from tts_orch.drafters.target_facts import lm_head
from tts_orch.engine.model_options import context_limit

__all__ = ["CausalLM"]


class CausalLM:
    """A `HeadNetwork` that reads tokens alone, row `t` token `t`.

    Sliding windows are not kept to: a drafter that was trained with one drafts worse beyond it, never wrongly.

    Args:
        model: with plain attention, in evaluation mode on its device.
        vocabulary_size: of the target.
    """

    first_token = 0
    feature_layers: tuple[int, ...] = ()

    def __init__(self, model: PreTrainedModel, vocabulary_size: int) -> None:
        self._backbone = model.base_model
        self.vocabulary_size = min(vocabulary_size, model.get_output_embeddings().weight.shape[0])
        self._head = lm_head(model, self.vocabulary_size)
        self.max_context = context_limit(model.config.get_text_config())
        self.device, self.dtype = model.device, model.dtype
        names = inspect.signature(self._backbone.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # newer and older transformers

    def read(
        self, token_ids: Tensor, features: Tensor | None, positions: Tensor, mask: Tensor, past: Layers
    ) -> tuple[Tensor, Layers]:
        """Compute rows (`HeadNetwork`)."""
        cache: Any = DynamicCache()
        for layer, (keys, values) in enumerate(past):
            cache.update(keys, values, layer)
        hidden = torch.zeros(mask.shape, dtype=self.dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
        inputs = {self._cache_name: cache, "attention_mask": hidden, "position_ids": positions}
        output = self._backbone(input_ids=token_ids, use_cache=True, **inputs)
        return output.last_hidden_state, [(layer.keys, layer.values) for layer in cache.layers]

    def logits(self, states: Tensor) -> Tensor:
        """Return the model's own logits (`HeadNetwork`)."""
        return self._head(states)
