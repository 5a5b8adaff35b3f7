"""The parts of which draft heads are made: Llama's attention and MLP, with keys and values handed in and out."""

from __future__ import annotations

from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.activations import ACT2FN

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.rotary import Rotation, rotated

__all__ = ["Attention", "GatedMLP", "KeysAndValues", "causal_mask"]

KeysAndValues: TypeAlias = tuple[Tensor, Tensor]
"""`[B, kv_heads, S, head_dim]` each."""


class Attention(nn.Module):
    """Grouped-query attention with rotary positions.

    Args:
        config: shape of the head.
        n_inputs: width of what queries, keys and values are made of.
    """

    def __init__(self, config: HeadConfig, n_inputs: int) -> None:
        super().__init__()
        self._head_dim = config.head_dim
        width, bias = config.num_attention_heads * config.head_dim, config.attention_bias
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(n_inputs, width, bias=bias)
        self.k_proj = nn.Linear(n_inputs, key_width, bias=bias)
        self.v_proj = nn.Linear(n_inputs, key_width, bias=bias)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(
        self, states: Tensor, rotation: Rotation, mask: Tensor | None, past: KeysAndValues | None
    ) -> tuple[Tensor, KeysAndValues]:
        """Return `[B, T, d]` of `[B, T, n_inputs]`, and all keys and values; masks are those of the heads."""
        queries, keys, values = (
            projection(states).unflatten(-1, (-1, self._head_dim)).transpose(1, 2)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys = rotated(queries, rotation), rotated(keys, rotation)
        if past is not None:
            keys, values = torch.cat([past[0], keys], dim=2), torch.cat([past[1], values], dim=2)
        if mask is None:
            mask = causal_mask(queries.shape[2], keys.shape[2], keys.device)
        attended = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)
        return self.o_proj(attended.transpose(1, 2).flatten(2)), (keys, values)


class GatedMLP(nn.Module):
    """`down(activation(gate(x)) * up(x))`.

    Args:
        config: shape of the head.
    """

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)
        self._activation = ACT2FN[config.hidden_act]

    def forward(self, states: Tensor) -> Tensor:
        """Return `[..., d]` of `[..., d]`."""
        return self.down_proj(self._activation(self.gate_proj(states)) * self.up_proj(states))  # type: ignore[no-any-return]


def causal_mask(n_rows: int, n_keys: int, device: torch.device) -> Tensor:
    """Return `[n_rows, n_keys]`: the last row reads all keys, each earlier one a key less."""
    return torch.ones(n_rows, n_keys, dtype=torch.bool, device=device).tril(n_keys - n_rows)
