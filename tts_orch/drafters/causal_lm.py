"""A small language model of the target's vocabulary as a drafter."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel

from tts_orch.drafters.draft_network import Layers
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.engine.model_files import tokenizer_id
from tts_orch.engine.model_options import context_limit
from tts_orch.engine.output_layer import OutputLayer
from tts_orch.engine.stable import stabilise
from tts_orch.errors import ConfigError, first_line
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["CausalLM", "load_causal_lm"]


class CausalLM:
    """A `HeadNetwork` that reads tokens alone, row `t` token `t`.

    Sliding windows are not kept to: a drafter that was trained with one drafts worse beyond it, never wrongly.

    Args:
        model: with plain attention, in evaluation mode on its device.
        vocabulary_size: of the target; the model has no fewer.
    """

    first_token = 0
    feature_layers: tuple[int, ...] = ()
    vocabulary: DraftVocabulary | None = None

    def __init__(self, model: PreTrainedModel, vocabulary_size: int) -> None:
        self._backbone = model.base_model
        self.vocabulary_size = vocabulary_size
        self._output_layer = OutputLayer(model)
        self.max_context = context_limit(model.config.get_text_config())
        self.device, self.dtype = model.device, model.dtype
        names = inspect.signature(self._backbone.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # newer and older transformers

    def project(self, features: Tensor) -> Tensor:
        """Return what is never asked for: it reads no features (`HeadNetwork`)."""
        return features

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
        return self._output_layer(states)[..., : self.vocabulary_size]


def load_causal_lm(folder: Path, target: TargetFacts) -> CausalLM:
    """Load a language model from a folder of transformers, onto the target's device.

    Raises:
        ConfigError: it cannot be read, has another tokenizer than the target, or no row for some of its tokens.
    """
    try:
        its_tokenizer = tokenizer_id(AutoTokenizer.from_pretrained(folder)) if target.tokenizer_id else ""
        loaded = AutoModelForCausalLM.from_pretrained(folder, dtype=target.dtype, attn_implementation="sdpa")
        model: PreTrainedModel = torch.nn.Module.to(loaded, target.device)  # the model's own `to` hides its types
    except Exception as error:  # each file format and architecture has its own ways to fail
        raise ConfigError(
            f"{folder}: neither a draft head nor a language model ({first_line(error)}); give the folder of a drafter"
        ) from None
    if its_tokenizer != target.tokenizer_id:
        raise ConfigError(f"{folder}: its tokenizer is not the target's; take a language model of the same family")
    n_tokens = model.config.get_text_config().vocab_size
    if n_tokens < target.vocab_size:
        raise ConfigError(
            f"{folder}: knows {n_tokens} tokens, the target {target.vocab_size}; take a language model of the same family"
        )
    if target.is_bitwise:
        stabilise(model)
    return CausalLM(model.eval().requires_grad_(False), target.vocab_size)
