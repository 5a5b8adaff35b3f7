"""The network of EAGLE-2 and HASS: one decoder layer that continues the target's features.

At position `t` it reads the embedding of token `t + 1` and the feature of position `t`, and predicts the feature of position
`t + 1`, from which the target's own LM head gives the law of token `t + 2`. Names of parameters are those of the authors' files.

Sources: arXiv 2401.15077, 2406.16858, 2408.15766.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.head_layers import Attention, GatedMLP, KeysAndValues
from tts_orch.drafters.rotary import Rotation, rotation
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["EagleHead"]


class EagleHead(nn.Module):
    """A draft head; the embedding and the LM head are the target's and no part of it.

    Args:
        config: its shape.
        vocabulary: the tokens that it may propose, where these are not all; their rows of the LM head are the target's.
    """

    def __init__(self, config: HeadConfig, vocabulary: DraftVocabulary | None = None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size)
        self.layers = nn.ModuleList([_DecoderLayer(config)])

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        past: KeysAndValues | None = None,
    ) -> tuple[Tensor, KeysAndValues]:
        """Predict the next features.

        Args:
            embeddings: `[B, T, d]` of token `t + 1`.
            features: `[B, T, d]` of position `t`, of the target or the head's own.
            positions: `[B, T]` the `t` of each.
            mask: `[B, 1, T, S]`, true where a row reads a key; each row must read one. Past keys come first. None is causal.
            past: keys and values to begin with.

        Returns:
            `[B, T, d]` features of positions `t + 1`, and all keys and values, `S` of them.
        """
        states = self.fc(torch.cat([embeddings, features], dim=-1))
        angles = rotation(self.config, positions, states.dtype)
        return self.layers[0](states, angles, mask, past)  # type: ignore[no-any-return]


class _DecoderLayer(nn.Module):
    """Attention without a norm before it, then an MLP behind a norm."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config, config.hidden_size)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(
        self, states: Tensor, rotation: Rotation, mask: Tensor | None, past: KeysAndValues | None
    ) -> tuple[Tensor, KeysAndValues]:
        attended, keys_and_values = self.self_attn(states, rotation, mask, past)
        states = states + attended
        return states + self.mlp(self.post_attention_layernorm(states)), keys_and_values
