"""A process reward head: from a hidden state at the end of a step to the logit of its being good, and its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Literal

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn

from tts_orch.atomic_file import write_atomically
from tts_orch.errors import ConfigError, first_line
from tts_orch.reward_config import Reads
from tts_orch.rewards.likelihood import N_LIKELIHOODS
from tts_orch.settings import Settings

__all__ = ["HeadConfig", "ProcessHead", "n_inputs", "read_head", "write_head"]

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "head.safetensors"


def n_inputs(reads: Reads, hidden_size: int) -> int:
    """Return how many numbers a head reads for a step."""
    return (hidden_size if reads != "likelihood" else 0) + (N_LIKELIHOODS if reads != "hidden_state" else 0)


class HeadConfig(Settings):
    """What a head is, and what it was trained on and for."""

    format: Literal["tts_orch process reward head"] = "tts_orch process reward head"
    version: Literal[1] = 1
    base_model: str
    """The causal language model whose hidden states it reads."""
    base_weights: str
    """Hash of that model's configuration and weights."""
    dtype: str
    """Weights' type of the base model."""
    template: Literal["raw", "chat"]
    """How a prompt becomes tokens."""
    delimiters: tuple[str, ...] = Field(min_length=1)
    """Texts that end a step; the first one is put behind every step, and read at its last token."""
    layer: int
    """Which hidden states: 0 are the embeddings, -1 is the output of the last layer."""
    reads: Reads = "hidden_state"
    """What it reads of a step."""
    kind: Literal["linear", "mlp"]
    width: int = Field(ge=0)
    """Size of the hidden layer; 0 without one."""
    hidden_size: int = Field(ge=1)
    """Of the base model."""
    training: dict[str, Any] = Field(default_factory=dict)
    """Where the labels come from."""
    held_out: dict[str, Any] = Field(default_factory=dict)
    """How well it judges steps of problems that it was not trained on."""

    @property
    def n_inputs(self) -> int:
        """Numbers that it reads for a step."""
        return n_inputs(self.reads, self.hidden_size)


class ProcessHead(nn.Module):
    """Standardises what is known of a step and maps it to a logit; linear, or with one hidden layer.

    Args:
        n_inputs: hidden state of the base model, and what else is read.
        width: of the hidden layer; 0 for a linear head.
    """

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, n_inputs: int, width: int = 0) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_inputs))
        self.register_buffer("scale", torch.ones(n_inputs))
        hidden = [nn.Linear(n_inputs, width), nn.GELU()] if width else []
        self.layers = nn.Sequential(*hidden, nn.Linear(width or n_inputs, 1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits `[n]` of steps `[n, n_inputs]`, in float32."""
        standardised = (hidden.float() - self.mean) / self.scale
        logits: torch.Tensor = self.layers(standardised)[..., 0]
        return logits


def write_head(folder: Path, config: HeadConfig, head: ProcessHead) -> None:
    """Write a head into an existing folder, its configuration last.

    Raises:
        RunError: the folder cannot be written.
    """
    write_atomically(folder / _WEIGHTS, save({name: tensor.contiguous() for name, tensor in head.state_dict().items()}))
    write_atomically(folder / _CONFIG, config.model_dump_json(indent=2) + "\n")


def read_head(folder: Path) -> tuple[HeadConfig, ProcessHead]:
    """Read a head, ready to score.

    Raises:
        ConfigError: there is none, or it is damaged.
    """
    try:
        config = HeadConfig(**json.loads((folder / _CONFIG).read_bytes()))
        head = ProcessHead(config.n_inputs, config.width)
        head.load_state_dict(load_file(folder / _WEIGHTS))
    except (OSError, TypeError, ValueError, RuntimeError, ConfigError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ConfigError(
            f"{folder}: no process reward head ({reason}); make one with `tts-orch reward train`"
        ) from None
    return config, head.eval().requires_grad_(False)
