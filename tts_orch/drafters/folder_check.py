"""What can be said of a drafter's folder without loading it: what it is, and whether it fits its target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.engine.model_files import folder_here, weights_id
from tts_orch.errors import ConfigError

__all__ = ["check_drafter"]

_FLOAT_BYTES: Final = 4
_KIND: Final = ("architecture", "speculators_model_type", "model_type")


def check_drafter(name: str, folder: Path, target: str) -> str:
    """Return a line on a trained drafter.

    Args:
        name: what it is called.
        folder: where it is.
        target: the target model; whether the drafter fits it is not known before its files are on this machine.

    Raises:
        ConfigError: it cannot be used with the target; what only its weights tell is not looked at.
    """
    place = folder / "config.json"
    values = _read(place)
    weights = [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]
    if not weights:
        raise ConfigError(f"drafters: {name}: no weights in {folder}; train it again, or give another folder")
    if "architecture" in values:
        _check_target(place, HeadConfig.from_json(values, str(place)), target)
    kind = next((values[name] for name in _KIND if name in values), "unknown")
    size = sum(file.stat().st_size for file in weights) / 2**20
    return f"{kind}, {size:.1f} MiB of weights in {folder}{_memory(values)}"


def _memory(values: Mapping[str, Any]) -> str:
    """Return what a drafter keeps of the texts that it drafts on, nothing where its configuration does not say it."""
    n_heads = values.get("num_attention_heads")
    if not n_heads or not values.get("hidden_size"):
        return ""
    width = values.get("head_dim") or values["hidden_size"] // n_heads
    n_floats = 2 * values.get("num_hidden_layers", 1) * (values.get("num_key_value_heads") or n_heads) * width
    return (
        f"; keeps {n_floats * _FLOAT_BYTES / 2**10:.1f} KiB a token of each candidate in float32, outside kv_memory_gib"
    )


def _check_target(place: Path, head: HeadConfig, target: str) -> None:
    folder = folder_here(target)
    if folder is None:
        return
    values = _read(folder / "config.json")
    wanted = values.get("text_config", values)
    for name, size in (("hidden_size", head.feature_size), ("vocab_size", head.vocab_size)):
        if wanted.get(name) not in (None, size):
            raise ConfigError(f"{place}: {name} is {size}, but {wanted[name]} in {target}; give a head trained for it")
    own = head.target_weights_id
    if own and own != weights_id(folder):  # of files that a run would read as well
        raise ConfigError(f"{place}: trained for other weights than those of {target}; give a head trained for them")


def _read(place: Path) -> dict[str, Any]:
    try:
        values = json.loads(place.read_bytes())
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f"{place}: no readable configuration of a model; train it again, or give another folder")
    return values
