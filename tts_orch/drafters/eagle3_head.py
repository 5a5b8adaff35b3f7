"""The network of EAGLE-3: a decoder layer on several hidden states of the target, with an LM head of its own.

The hidden states of a position are projected to one feature. At position `t` the layer reads the embedding of token `t + 1`
beside that feature, and the LM head says from its output what token `t + 2` is, out of a draft vocabulary. Behind a draft the
output takes the place of the feature: nothing ties it to the target's. Names of parameters are those of the authors' files.

Source: arXiv 2503.01840.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.head_layers import Attention, GatedMLP, KeysAndValues
from tts_orch.drafters.rotary import Rotation, rotation
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["Eagle3Head"]


class Eagle3Head(nn.Module):
    """A draft head; the embedding is the target's and no part of it, unless its configuration says so.

    Args:
        config: its shape; options that later versions of the architecture added among it.
        vocabulary: the tokens of the columns of its logits, where these are not all.
    """

    def __init__(self, config: HeadConfig, vocabulary: DraftVocabulary | None = None) -> None:
        super().__init__()
        self.config = config
        self.vocabulary = vocabulary
        width, epsilon = config.hidden_size, config.rms_norm_eps
        n_states, n_inputs = len(config.feature_layers), len(config.feature_layers) * config.feature_size
        self.input_norm = nn.RMSNorm(n_inputs, eps=epsilon) if config.norm_before_fc else None
        norms = (nn.RMSNorm(config.feature_size, eps=epsilon) for _ in range(n_states if config.fc_norm else 0))
        self.fc_norm = nn.ModuleList(norms)
        self.fc = nn.Linear(n_inputs, width, bias=False)
        self.embed_tokens = nn.Embedding(config.vocab_size, width) if config.has_embedding else None
        self.midlayer = _DecoderLayer(config)
        self.norm = nn.RMSNorm(width, eps=epsilon)
        self.lm_head = nn.Linear(width, config.draft_vocab_size or config.vocab_size, bias=False)

    def project(self, features: Tensor) -> Tensor:
        """Return `[..., d]` what the layer reads of the target's hidden states `[..., layers * target's d]`."""
        if self.input_norm is not None:
            features = self.input_norm(features)
        if self.fc_norm:
            states = features.chunk(len(self.fc_norm), dim=-1)
            features = torch.cat([norm(state) for norm, state in zip(self.fc_norm, states, strict=True)], dim=-1)
        return self.fc(features)  # type: ignore[no-any-return]

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        past: KeysAndValues | None = None,
    ) -> tuple[Tensor, KeysAndValues]:
        """Predict the next states.

        Args:
            embeddings: `[B, T, d]` of token `t + 1`.
            features: `[B, T, d]` of position `t`, projected, or what this method returned for the position before.
            positions: `[B, T]` the `t` of each.
            mask: `[B, 1, T, S]`, true where a row reads a key; each row must read one. Past keys come first. None is causal.
            past: keys and values to begin with.

        Returns:
            `[B, T, d]` states, from which `logits` tells what follows, and all keys and values, `S` of them.
        """
        angles = rotation(self.config, positions, features.dtype)
        states, keys_and_values = self.midlayer(embeddings, features, angles, mask, past)
        return self.norm(states) if self.config.norm_output else states, keys_and_values

    def logits(self, states: Tensor) -> Tensor:
        """Return `[..., k]` logits of states `[..., d]`, a column for every token of the vocabulary."""
        return self.lm_head(self.normed(states))  # type: ignore[no-any-return]

    def normed(self, states: Tensor) -> Tensor:
        """Return what the LM head reads of states, `[..., d]`."""
        return states if self.config.norm_output else self.norm(states)


class _DecoderLayer(nn.Module):
    """Attention that reads embedding and feature side by side, each behind a norm; then an MLP behind a norm."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self._adds_normed = config.norm_before_residual
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.self_attn = Attention(config, 2 * config.hidden_size)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = GatedMLP(config)

    def forward(
        self, embeddings: Tensor, features: Tensor, angles: Rotation, mask: Tensor | None, past: KeysAndValues | None
    ) -> tuple[Tensor, KeysAndValues]:
        normed = self.hidden_norm(features)
        inputs = torch.cat([self.input_layernorm(embeddings), normed], dim=-1)
        attended, keys_and_values = self.self_attn(inputs, angles, mask, past)
        states = (normed if self._adds_normed else features) + attended
        return states + self.mlp(self.post_attention_layernorm(states)), keys_and_values
