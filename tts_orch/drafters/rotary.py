"""Rotary positions of draft heads, scaled where those of a published head are.

Sources: arXiv 2104.09864; the scaling of Llama 3.1, arXiv 2407.21783; linear scaling, arXiv 2306.15595.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import ConfigError

__all__ = ["Rotation", "known_scaling", "rotated", "rotation"]

_SCALINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "default": (),
    "linear": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}
"""By their names in transformers, with what must be known of each."""

Rotation: TypeAlias = tuple[Tensor, Tensor]
"""Cosines and sines `[B, 1, T, head_dim / 2]`."""


def known_scaling(layer: Mapping[str, Any], file: Path) -> dict[str, Any] | None:
    """Return how the positions of a published layer are scaled, as `HeadConfig.rope_scaling`; None if they are not.

    Args:
        layer: its configuration, of transformers.
        file: of its weights, for messages.

    Raises:
        ConfigError: they are scaled in a way that is not known here.
    """
    scaling = layer.get("rope_scaling") or layer.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind not in _SCALINGS or not scaling.keys() >= set(_SCALINGS[kind]):
        raise ConfigError(
            f"{file}: cannot scale its rotary positions by {kind!r}; take a head with {', '.join(_SCALINGS)}"
        )
    return None if kind == "default" else {**scaling, "rope_type": kind}


def rotation(config: HeadConfig, positions: Tensor, dtype: torch.dtype) -> Rotation:
    """Return the angles of positions `[B, T]`, computed in float32 or more."""
    precise = torch.float64 if dtype == torch.float64 else torch.float32
    angles = positions[:, None, :, None].to(precise) * _frequencies(config, positions.device, precise)
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotated(heads: Tensor, rotation: Rotation) -> Tensor:
    """Turn `[B, heads, T, head_dim]` by the angles of their positions."""
    cosines, sines = rotation
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def _frequencies(config: HeadConfig, device: torch.device, dtype: torch.dtype) -> Tensor:
    exponents = torch.arange(0, config.head_dim, 2, device=device, dtype=dtype) / config.head_dim
    frequencies: Tensor = config.rope_theta**-exponents
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    slowed = frequencies / float(scaling["factor"])
    if scaling["rope_type"] == "linear":
        return slowed
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    turns = int(scaling["original_max_position_embeddings"]) * frequencies / (2 * math.pi)  # within the old context
    share = ((turns - low) / (high - low)).clamp(0, 1)  # slow waves are slowed further, fast ones stay
    return slowed + share * (frequencies - slowed)
