"""What a drafter must know of its target: sizes, identity, and the parts that a draft head shares with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tts_orch.engine.model_files import tokenizer_id
from tts_orch.engine.output_layer import OutputLayer
from tts_orch.engine.target import Target

__all__ = ["TargetFacts", "target_facts"]


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """A target as drafters see it.

    Attributes:
        hidden_size: width of its hidden states.
        vocab_size: ids that it can draw are below it.
        n_layers: number of its layers.
        weights_id: identity of its weights,
        tokenizer_id: and of its tokenizer; "" if nobody knows.
        embedding: `[V, hidden_size]`, at least `vocab_size` rows.
        output_layer: from what the LM head reads to logits, padded columns among them.
        config: the text model's, of transformers.
        device: where it computes,
        dtype: and in which type.
        is_bitwise: whether its kernels, which leave torch one thread, are the bit-stable ones.
    """

    hidden_size: int
    vocab_size: int
    n_layers: int
    weights_id: str
    tokenizer_id: str
    embedding: Tensor
    output_layer: OutputLayer
    config: Any
    device: torch.device
    dtype: torch.dtype
    is_bitwise: bool = False

    def head(self, states: Tensor) -> Tensor:
        """Return logits `[..., vocab_size]` of what the LM head reads, `[..., hidden_size]`."""
        return self.output_layer(states)[..., : self.vocab_size]


def target_facts(target: Target) -> TargetFacts:
    """Return the facts of a loaded target.

    Raises:
        TargetError: it has no output layer.
    """
    config = target.model.config.get_text_config()
    embedding: Tensor = target.model.get_input_embeddings().weight
    return TargetFacts(
        hidden_size=config.hidden_size,
        vocab_size=target.vocab_size,
        n_layers=config.num_hidden_layers,
        weights_id=target.weights_id,
        tokenizer_id=tokenizer_id(target.tokenizer),
        embedding=embedding.detach(),
        output_layer=OutputLayer(target.model, target.name),
        config=config,
        device=target.device,
        dtype=target.dtype,
        is_bitwise=target.numerics == "bitwise",
    )
