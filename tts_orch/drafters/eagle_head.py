"""The network of EAGLE-2 and HASS: one decoder layer that continues the target's features.

At position `t` it reads the embedding of token `t + 1` and the feature of position `t`, and predicts the feature of position
`t + 1`, from which the target's own LM head gives the law of token `t + 2`. Names of parameters are those of the authors' files.

Sources: arXiv 2401.15077, 2406.16858, 2408.15766.
"""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN

from tts_orch.drafters.head_config import HeadConfig

__all__ = ["EagleHead", "KeysAndValues", "causal_mask"]

KeysAndValues: TypeAlias = tuple[Tensor, Tensor]
"""`[B, kv_heads, S, head_dim]` each."""


class EagleHead(nn.Module):
    """A draft head; the embedding and the LM head are the target's and no part of it.

    Args:
        config: its shape.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.config = config
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
        rotation = _rotation(self.config, positions, states.dtype)
        return self.layers[0](states, rotation, mask, past)  # type: ignore[no-any-return]


def causal_mask(n_rows: int, n_keys: int, device: torch.device) -> Tensor:
    """Return `[n_rows, n_keys]`: the last row reads all keys, each earlier one a key less."""
    return torch.ones(n_rows, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_rows)


class _DecoderLayer(nn.Module):
    """Attention without a norm before it, then an MLP behind a norm."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.self_attn = _Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp = _GatedMLP(config)

    def forward(
        self, states: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, past: KeysAndValues | None
    ) -> tuple[Tensor, KeysAndValues]:
        attended, keys_and_values = self.self_attn(states, rotation, mask, past)
        states = states + attended
        return states + self.mlp(self.post_attention_layernorm(states)), keys_and_values


class _Attention(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self._head_dim = config.head_dim
        width, bias = config.num_attention_heads * config.head_dim, config.attention_bias
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=bias)
        self.k_proj = nn.Linear(config.hidden_size, key_width, bias=bias)
        self.v_proj = nn.Linear(config.hidden_size, key_width, bias=bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(
        self, states: Tensor, rotation: tuple[Tensor, Tensor], mask: Tensor | None, past: KeysAndValues | None
    ) -> tuple[Tensor, KeysAndValues]:
        queries, keys, values = (
            projection(states).unflatten(-1, (-1, self._head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys = _rotated(queries, rotation), _rotated(keys, rotation)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
        if mask is None:
            mask = causal_mask(queries.shape[2], keys.shape[2], keys.device)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2)), (keys, values)


class _GatedMLP(nn.Module):
    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self._activation = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        return self.down_proj(self._activation(self.gate_proj(states)) * self.up_proj(states))  # type: ignore[no-any-return]


def _rotation(config: HeadConfig, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return cosines and sines `[B, 1, T, head_dim / 2]` of the rotary angles (arXiv 2104.09864), computed in float32 or more."""
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    exponents = torch.arange(0, config.head_dim, 2, device=positions.device, dtype=precise) / config.head_dim
    angles = positions[:, None, :, None].to(precise) * config.rope_theta**-exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def _rotated(heads: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    cosines, sines = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)
