"""The file of weights in a folder of a published head, opened without reading it and without running what may be in it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tts_orch.errors import ConfigError, first_line

__all__ = ["in_one_line", "opened_weights", "weight_file"]

_FILES: Final = ("model.safetensors", "pytorch_model.bin")


def weight_file(folder: Path) -> Path | None:
    """Return the file of weights, None if there is none in one piece."""
    return next((folder / name for name in _FILES if (folder / name).is_file()), None)


def opened_weights(file: Path) -> dict[str, Callable[[], Tensor]]:
    """Return what reads each of a file's weights, by name; nothing is read yet.

    Raises:
        ConfigError: it is damaged, or something else.
    """
    try:
        if file.suffix == ".safetensors":
            weights: Any = safe_open(file, framework="pt")
            return {name: partial(weights.get_tensor, name) for name in weights.keys()}  # noqa: SIM118 (it is no mapping)
        mapped = torch.load(file, weights_only=True, mmap=True, map_location="cpu")
        return {name: weight.clone for name, weight in mapped.items()}
    except (OSError, RuntimeError, ValueError, AttributeError, pickle.UnpicklingError, SafetensorError) as error:
        raise ConfigError(f"{file}: not a file of weights ({in_one_line(error)}); fetch it again") from None


def in_one_line(error: Exception) -> str:
    """Return the beginning of an error's text without line breaks."""
    return " ".join(str(error).split()[:40]) or first_line(error)
