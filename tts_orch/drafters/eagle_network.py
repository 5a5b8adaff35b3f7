"""A draft head of EAGLE-2 or HASS, together with the embedding and the LM head of its target."""

from __future__ import annotations

from torch import Tensor

from tts_orch.drafters.draft_network import Layers
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.engine.stable import stabilise

__all__ = ["EagleNetwork"]


class EagleNetwork:
    """A `HeadNetwork`: row `t` reads token `t + 1` and the feature of position `t`.

    Args:
        head: changed in place: it takes over the target's device, type and, where these are bit-stable, its kernels.
        target: whose features it continues.
    """

    first_token = 1

    def __init__(self, head: EagleHead, target: TargetFacts) -> None:
        self._head = head.to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)
        self._target = target
        if target.is_bitwise:
            stabilise(self._head)
        self.feature_layers = head.config.feature_layers
        self.vocabulary_size = target.vocab_size
        self.max_context = head.config.max_context
        self.device, self.dtype = target.device, target.dtype

    def read(
        self, token_ids: Tensor, features: Tensor | None, positions: Tensor, mask: Tensor, past: Layers
    ) -> tuple[Tensor, Layers]:
        """Compute rows (`HeadNetwork`)."""
        embeddings = self._target.embedding[token_ids]
        states, keys_and_values = self._head(embeddings, features, positions, mask, past[0] if past else None)
        return states, [keys_and_values]

    def logits(self, states: Tensor) -> Tensor:
        """Return the target's own reading of predicted features (`HeadNetwork`)."""
        return self._target.head(states)
