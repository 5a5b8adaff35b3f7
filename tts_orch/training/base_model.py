"""The frozen language model whose hidden states a process reward head reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from tts_orch.config import EngineConfig
from tts_orch.engine.model_files import locate, weights_id
from tts_orch.engine.model_options import device_named, dtype_named
from tts_orch.errors import TargetError, first_line
from tts_orch.rewards.likelihood import N_LIKELIHOODS, Likelihood
from tts_orch.rewards.model_loading import readable_positions
from tts_orch.rewards.prefix_scorer import PrefixScorer
from tts_orch.rewards.segments import Segment
from tts_orch.rewards.trained_head import readable_model

__all__ = ["BaseFiles", "BaseModel", "read_base_files"]

_BATCH: Final = 16  # solutions in a pass
_FILES: Final = ["*.json", "*.safetensors", "*.model", "*.txt"]


class BaseModel:
    """A base model up to the layer that is read.

    Args:
        model: without its output layer, in evaluation mode.
        likelihood: what is read beside its hidden states.

    Attributes:
        n_features: width of its hidden states, and what is read beside them.
    """

    def __init__(self, model: PreTrainedModel, likelihood: Likelihood | None = None) -> None:
        self._model = model
        self._likelihood = likelihood
        self.n_features: int = model.config.get_text_config().hidden_size + (N_LIKELIHOODS if likelihood else 0)

    def hidden_states(self, solutions: Sequence[Sequence[Segment]]) -> list[torch.Tensor]:
        """Return the hidden states `[n, n_features]` at the ends of the segments of every solution that are to be read.

        They are read as they will be when the head is used, shared beginnings once.
        """
        states: list[torch.Tensor] = []

        def number(hidden: torch.Tensor) -> torch.Tensor:
            """Keep the states, and return their numbers in the place of scores."""
            states.extend(hidden.float().cpu())
            return torch.arange(len(states) - len(hidden), len(states))

        readings = PrefixScorer(self._model, number, batch=_BATCH, likelihood=self._likelihood).read(solutions)
        nothing = torch.zeros(0, self.n_features)
        return [torch.stack([states[int(i)] for i in one.scores]) if one.scores else nothing for one in readings]


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """A base model on disk.

    Attributes:
        folder: with its files.
        tokenizer: its own.
        weights_id: hash of its configuration and weights.
        hidden_size: width of its hidden states.
        max_tokens: what it reads at most.
        device: where it is to be loaded.
        dtype: type of its weights there.
    """

    folder: Path
    tokenizer: Any
    weights_id: str
    hidden_size: int
    max_tokens: int
    device: torch.device
    dtype: torch.dtype

    @property
    def dtype_name(self) -> str:
        """The type of the weights as settings write it."""
        return str(self.dtype).removeprefix("torch.")

    def load(self, layer: int, with_likelihood: bool = False) -> BaseModel:
        """Load it up to a layer, or whole where likelihoods are read too.

        Raises:
            ConfigError: it has no such layer.
        """
        logging.disable_progress_bar()
        whole: Any = AutoModelForCausalLM.from_pretrained(self.folder, dtype=self.dtype)
        torch.nn.Module.to(whole.eval().requires_grad_(False), self.device)  # the model's own `to` hides its types
        return BaseModel(*readable_model(whole, layer, with_likelihood))


def read_base_files(config: EngineConfig) -> BaseFiles:
    """Find a base model by the settings of a target, and fetch it where it is a hub's.

    Raises:
        ConfigError: there is no such device.
        TargetError: it cannot be found or read.
    """
    device = device_named(config.device)
    try:
        folder = _folder(locate(config.target))
        text = AutoConfig.from_pretrained(folder).get_text_config()
        tokenizer = AutoTokenizer.from_pretrained(folder)
    except TargetError:
        raise
    except Exception as error:  # each file format and architecture has its own ways to fail
        raise TargetError(
            f"{config.target}: cannot read the base model ({first_line(error)}); give another target"
        ) from None
    limit = readable_positions(text)
    return BaseFiles(
        folder,
        tokenizer,
        weights_id=weights_id(folder),
        hidden_size=text.hidden_size,
        max_tokens=min(config.max_context or limit, limit),
        device=device,
        dtype=dtype_named(config.dtype, device),
    )


def _folder(place: Path | str) -> Path:
    from huggingface_hub import snapshot_download

    return place if isinstance(place, Path) else Path(snapshot_download(place, allow_patterns=_FILES))
