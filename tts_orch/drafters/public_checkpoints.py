"""Heads as the authors of EAGLE, EAGLE-2 and HASS publish them: a Llama configuration, and weights of one layer with `fc`.

Names of weights are those of `EagleHead`; copies of the target's embedding and LM head may come with them. They must be copies
of *this* target's, since the head never learned to read another one's.

Sources: arXiv 2401.15077, 2406.16858, 2408.15766.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.errors import ConfigError, first_line

__all__ = ["is_public_head", "read_public_head"]

_FILES: Final = ("model.safetensors", "pytorch_model.bin")
_MARK: Final = "fc.weight"
_EMBEDDING: Final = "embed_tokens.weight"
_LM_HEAD: Final = "lm_head.weight"
_COMPARED_ROWS: Final = 4096
"""Rows of an embedding that are compared, spread over all of it."""


def is_public_head(folder: Path) -> bool:
    """Tell whether a folder's weights are those of a head, and not of a whole language model.

    Raises:
        ConfigError: they cannot be read.
    """
    return any(_MARK in _opened(folder / name) for name in _FILES if (folder / name).is_file())


def read_public_head(folder: Path, config: Mapping[str, Any], target: TargetFacts) -> EagleHead:
    """Read a published head.

    Args:
        folder: where it is.
        config: its `config.json`.
        target: whose embedding and LM head it must have been trained with.

    Raises:
        ConfigError: it is damaged, of another kind, or of another target.
    """
    file = next(folder / name for name in _FILES if (folder / name).is_file())
    weights = {name: weight for name, weight in _weights(file).items() if "rotary_emb" not in name}
    _check_copies(folder, weights.pop(_EMBEDDING, None), weights.pop(_LM_HEAD, None), target)
    try:
        settings: dict[str, Any] = {
            "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
            "trained_by": {"published": folder.name},
        }
        head = EagleHead(HeadConfig.for_target(SimpleNamespace(**config), **settings))
        weights.setdefault("fc.bias", torch.zeros(head.config.hidden_size))
        head.load_state_dict(weights)
    except (AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"{file}: not a head of EAGLE-2 or HASS ({_in_one_line(error)}); take one, or train it"
        ) from None
    return head


def _check_copies(folder: Path, embedding: Tensor | None, lm_head: Tensor | None, target: TargetFacts) -> None:
    """Refuse copies of another target's embedding or LM head."""
    if embedding is not None:
        rows = torch.arange(0, len(embedding), max(1, len(embedding) // _COMPARED_ROWS))
        is_same = embedding.shape == target.embedding.shape and _are_close(
            embedding[rows], target.embedding[rows.to(target.device)]
        )
        if not is_same:
            raise ConfigError(f"{folder}: its embed_tokens are not the target's; take a head of this target")
    if lm_head is not None:
        states = torch.randn(4, target.hidden_size, generator=torch.Generator().manual_seed(0))
        logits = target.head(states.to(target.device, target.dtype))
        is_same = lm_head.shape[1] == target.hidden_size and len(lm_head) >= logits.shape[-1]
        if not is_same or not _are_close(states @ lm_head[: logits.shape[-1]].float().T, logits):
            raise ConfigError(
                f"{folder}: its lm_head is not the target's; heads with an LM head of their own are of another kind"
            )


def _are_close(first: Tensor, second: Tensor) -> bool:
    """Compare numbers that may have been rounded to half precision."""
    second = second.float().cpu()
    return torch.allclose(first.float(), second, rtol=2e-2, atol=2e-2 * float(second.abs().mean()))


def _weights(file: Path) -> dict[str, Tensor]:
    return {name: read() for name, read in _opened(file).items()}


def _opened(file: Path) -> dict[str, Callable[[], Tensor]]:
    """Return what reads each of a file's weights; nothing is read yet."""
    try:
        if file.suffix == ".safetensors":
            weights: Any = safe_open(file, framework="pt")
            return {name: partial(weights.get_tensor, name) for name in weights.keys()}  # noqa: SIM118 (it is no mapping)
        mapped = torch.load(file, weights_only=True, mmap=True, map_location="cpu")
        return {name: weight.clone for name, weight in mapped.items()}
    except (OSError, RuntimeError, ValueError, AttributeError, pickle.UnpicklingError, SafetensorError) as error:
        raise ConfigError(f"{file}: not a file of weights ({_in_one_line(error)}); fetch it again") from None


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split()[:40]) or first_line(error)
