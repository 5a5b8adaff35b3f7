"""The frozen language model whose hidden states a process reward head reads."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils import logging

from tts_orch.config import EngineConfig
from tts_orch.engine.model_files import locate, weights_id
from tts_orch.engine.model_options import context_limit, device_named, dtype_named
from tts_orch.errors import TargetError, first_line
from tts_orch.records import IntArray
from tts_orch.rewards.cut_model import cut_to_layer

__all__ = ["BaseFiles", "BaseModel", "read_base_files"]

_FILES: Final = ["*.json", "*.safetensors", "*.model", "*.txt"]


class BaseModel:
    """A base model up to the layer that is read.

    Args:
        model: without its output layer, in evaluation mode.

    Attributes:
        hidden_size: width of its hidden states.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.hidden_size: int = model.config.get_text_config().hidden_size
        names = inspect.signature(model.forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # newer and older transformers

    @torch.inference_mode()
    def hidden_states(self, prompt: IntArray, continuations: Sequence[IntArray]) -> list[torch.Tensor]:
        """Return the hidden states `[n, hidden_size]` of every continuation of one prompt, which is computed once.

        Continuations are padded at their ends: what follows a token does not change its state.
        """
        cache = copy.deepcopy(self._forward(prompt[None]).past_key_values)
        cache.batch_repeat_interleave(len(continuations))
        lengths = [len(continuation) for continuation in continuations]
        padded = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
        for row, continuation in zip(padded, continuations, strict=True):
            row[: len(continuation)] = torch.as_tensor(continuation)
        states = self._forward(padded, **{self._cache_name: cache}).last_hidden_state
        return [row[:length].float().cpu() for row, length in zip(states, lengths, strict=True)]

    def _forward(self, token_ids: Any, **options: Any) -> Any:
        inputs = torch.as_tensor(token_ids, dtype=torch.long, device=self._model.device)
        return self._model(input_ids=inputs, use_cache=True, **options)


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

    def load(self, layer: int) -> BaseModel:
        """Load it up to a layer.

        Raises:
            ConfigError: it has no such layer.
        """
        logging.disable_progress_bar()
        whole: Any = AutoModelForCausalLM.from_pretrained(self.folder, dtype=self.dtype)
        model: PreTrainedModel = whole.base_model
        torch.nn.Module.to(model.eval().requires_grad_(False), self.device)  # the model's own `to` hides its types
        return BaseModel(cut_to_layer(model, layer))


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
    limit = context_limit(text)
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
