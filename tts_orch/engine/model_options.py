"""What the settings of a model mean on this machine: device, type of the weights, positions it can read."""

from __future__ import annotations

from typing import Any

import torch

from tts_orch.errors import ConfigError

__all__ = ["context_limit", "device_named", "dtype_named", "end_ids"]


def context_limit(text: Any) -> int:
    """Return the positions a model serves; rope variants that rescale with the batch's longest row only below their switch."""
    limit = int(getattr(text, "max_position_embeddings", None) or 2**20)
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None) or {}
    original = rope.get("original_max_position_embeddings") if isinstance(rope, dict) else None
    if original and rope.get("rope_type") in ("dynamic", "longrope"):
        return min(limit, int(original))
    return limit


def device_named(name: str) -> torch.device:
    """Return the device that a setting names; `auto` is a GPU where there is one.

    Raises:
        ConfigError: there is no such device.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.device(name)
    except RuntimeError:
        raise ConfigError(f"device: there is no {name!r}; give `auto`, `cpu` or `cuda`") from None


def dtype_named(name: str, device: torch.device) -> torch.dtype:
    """Return the type that a setting names; `auto` is float32 on CPUs, else bfloat16."""
    if name != "auto":
        return getattr(torch, name)
    return torch.float32 if device.type == "cpu" else torch.bfloat16


def end_ids(*sources: Any) -> tuple[int, ...]:
    """Return the tokens that end a text by the `eos_token_id` of configurations and tokenizers; None says nothing."""
    found = [getattr(source, "eos_token_id", None) for source in sources]
    ids = {i for value in found if value is not None for i in (value if isinstance(value, list) else [value])}
    return tuple(sorted(ids))
