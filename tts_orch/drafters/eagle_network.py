"""Draft heads of EAGLE-2, HASS and EAGLE-3, together with what they share with their target."""

from __future__ import annotations

import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.draft_network import HeadNetwork, Layers
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.engine.stable import stabilise

__all__ = ["Eagle3Network", "EagleNetwork", "head_network"]


def head_network(head: DraftHead, target: TargetFacts) -> HeadNetwork:
    """Return a head as a network; it is changed in place, as the networks say."""
    return Eagle3Network(head, target) if isinstance(head, Eagle3Head) else EagleNetwork(head, target)


class _OneLayer:
    """A head whose row `t` reads token `t + 1` and the feature of position `t`."""

    first_token = 1

    def __init__(self, head: DraftHead, target: TargetFacts) -> None:
        head.to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)
        if target.is_bitwise:
            stabilise(head)
        self._head, self._embedding = head, target.embedding
        self.vocabulary = head.vocabulary
        self.vocabulary_size = target.vocab_size if head.vocabulary is None else head.vocabulary.size
        self.feature_layers = head.config.feature_layers
        self.max_context = head.config.max_context
        self.device, self.dtype = target.device, target.dtype

    def read(
        self, token_ids: Tensor, features: Tensor | None, positions: Tensor, mask: Tensor, past: Layers
    ) -> tuple[Tensor, Layers]:
        """Compute rows (`HeadNetwork`)."""
        embeddings = self._embedding[token_ids]
        states, keys_and_values = self._head(embeddings, features, positions, mask, past[0] if past else None)
        return states, [keys_and_values]


class EagleNetwork(_OneLayer):
    """A `HeadNetwork` of EAGLE-2 or HASS: predicted features are read by the target's LM head.

    Args:
        head: changed in place: it takes over the target's device, type and, where these are bit-stable, its kernels.
        target: whose features it continues.
    """

    def __init__(self, head: EagleHead, target: TargetFacts) -> None:
        super().__init__(head, target)
        self._output_layer = target.output_layer
        if head.vocabulary is not None:
            self._output_layer = target.output_layer.of_tokens(torch.from_numpy(head.vocabulary.ids))

    def project(self, features: Tensor) -> Tensor:
        """Return the features as they are: one hidden state (`HeadNetwork`)."""
        return features

    def logits(self, states: Tensor) -> Tensor:
        """Return the target's own reading of predicted features (`HeadNetwork`)."""
        return self._output_layer(states)[..., : self.vocabulary_size]


class Eagle3Network(_OneLayer):
    """A `HeadNetwork` of EAGLE-3.

    Args:
        head: changed in place: it takes over the target's device, type and, where these are bit-stable, its kernels.
        target: whose hidden states it reads.
    """

    _head: Eagle3Head

    def __init__(self, head: Eagle3Head, target: TargetFacts) -> None:
        super().__init__(head, target)
        if head.embed_tokens is not None:
            self._embedding = head.embed_tokens.weight

    def project(self, features: Tensor) -> Tensor:
        """Return one feature for the hidden states of each position (`HeadNetwork`)."""
        return self._head.project(features)

    def logits(self, states: Tensor) -> Tensor:
        """Return the logits of the head's own LM head (`HeadNetwork`)."""
        return self._head.logits(states)[..., : self.vocabulary_size]
