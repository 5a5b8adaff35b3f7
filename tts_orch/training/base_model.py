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
from tts_orch.reward_config import Reads
from tts_orch.rewards.likelihood import Likelihood
from tts_orch.rewards.model_loading import readable_positions
from tts_orch.rewards.prefix_scorer import PrefixScorer
from tts_orch.rewards.process_head import n_inputs
from tts_orch.rewards.segments import Segment
from tts_orch.rewards.trained_head import readable_model

__all__ = ["BaseFiles", "BaseModel", "read_base_files"]

_BATCH: Final = 16  # solutions in a pass
_FILES: Final = ["*.json", "*.safetensors", "*.model", "*.txt"]


class BaseModel:
    """A base model up to the layer that is read, or whole where likelihoods are.

    Args:
        model: in evaluation mode; its output layer is called by `likelihood` alone.
        reads: what is read.
        likelihood: measures likelihoods where they are.

    Attributes:
        n_features: how many numbers that is for a step.
    """

    def __init__(self, model: PreTrainedModel, reads: Reads, likelihood: Likelihood | None) -> None:
        self._model = model
        self._likelihood = likelihood
        self.n_features = n_inputs(reads, model.config.get_text_config().hidden_size)

    def features(self, solutions: Sequence[Sequence[Segment]]) -> list[torch.Tensor]:
        """Return what is read, `[n, n_features]`, at the ends of the segments of every solution that are to be scored.

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

    def load(self, layer: int, reads: Reads) -> BaseModel:
        """Load it up to a layer, or whole where likelihoods are read.

        Raises:
            ConfigError: it has no such layer.
        """
        logging.disable_progress_bar()
        whole: Any = AutoModelForCausalLM.from_pretrained(self.folder, dtype=self.dtype)
        torch.nn.Module.to(whole.eval().requires_grad_(False), self.device)  # the model's own `to` hides its types
        backbone, likelihood = readable_model(whole, layer, reads)
        return BaseModel(backbone, reads, likelihood)


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
