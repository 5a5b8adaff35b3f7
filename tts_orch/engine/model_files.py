"""Where a target's files are: names become folders, GGUF files are converted once, weights and tokenizers get an id.

Nothing here loads a model to decode with; `engine.target` does, from what `locate` returns.
"""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tts_orch.engine import demo_model
from tts_orch.engine.gguf_conversion import convert
from tts_orch.engine.model_cache import build_once, cache_folder, file_digest
from tts_orch.errors import TargetError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

__all__ = [
    "DEMO_TARGET",
    "check_place",
    "folder_here",
    "hub_snapshot",
    "locate",
    "tokenizer_id",
    "weight_files",
    "weights_id",
]

DEMO_TARGET: Final = "smollm2"
_HUB_ID: Final = re.compile(r"\w[\w.-]*(/[\w.-]+)?")
_CHOICES: Final = f"give {DEMO_TARGET!r}, a folder with a config.json, a .gguf file or a hub id"


def locate(target: str) -> Path | str:
    """Find a target model; fetch and convert it where that takes no more than time.

    Args:
        target: `smollm2` (the demo model), a local folder, a GGUF file, or a hub id.

    Returns:
        The folder with the model's files, or the hub id as it is.

    Raises:
        TargetError: there is no such model, or it could not be fetched or converted.
    """
    if target == DEMO_TARGET:
        return build_once(demo_model.CACHE_NAME, "the demo model", demo_model.build)
    check_place(target)
    path = Path(target).expanduser()
    if path.is_dir():
        return path
    if path.is_file():
        return build_once(f"gguf-{file_digest(path)[:16]}", str(path), lambda folder: convert(path, folder))
    return target


def folder_here(target: str) -> Path | None:
    """Return the folder of a target whose files are on this machine already; nothing is fetched or converted."""
    is_demo = target == DEMO_TARGET
    path = cache_folder() / demo_model.CACHE_NAME if is_demo else Path(target).expanduser()
    if path.is_dir():
        return path
    try:
        return hub_snapshot(target) if not is_demo and _HUB_ID.fullmatch(target) and not path.exists() else None
    except TargetError:
        return None


def check_place(target: str) -> None:
    """Refuse what is neither a model's folder nor a GGUF file nor a possible hub id; nothing is fetched or converted.

    Raises:
        TargetError: there is no such model.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise TargetError(f"{target}: no config.json in this folder; {_CHOICES}")
        return
    is_gguf_file = path.is_file() and path.suffix == ".gguf"
    may_be_hub_id = _HUB_ID.fullmatch(target) and not path.exists() and path.suffix != ".gguf"
    if not (is_gguf_file or may_be_hub_id):
        raise TargetError(f"{target}: there is no model here; {_CHOICES}")


def weights_id(location: Path | str) -> str:
    """Return a hash of a model's configuration and weights, the same on every machine that has these files.

    Args:
        location: what `locate` returned; a model from the hub must have been loaded before.

    Raises:
        TargetError: there are no weights.
    """
    folder = location if isinstance(location, Path) else hub_snapshot(location)
    digests = [f"{file.name} {file_digest(file)}\n" for file in (folder / "config.json", *weight_files(folder))]
    return hashlib.sha256("".join(digests).encode()).hexdigest()[:32]


def weight_files(folder: Path) -> list[Path]:
    """Return the files in a model's folder that hold its weights.

    Raises:
        TargetError: there are none.
    """
    weights = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    if not weights:
        raise TargetError(f"{folder}: no weights (*.safetensors) in this folder; {_CHOICES}")
    return weights


def tokenizer_id(tokenizer: PreTrainedTokenizerBase | None) -> str:
    """Return a hash of which text each token id stands for, empty without a tokenizer."""
    if tokenizer is None:
        return ""
    vocabulary = json.dumps(sorted(tokenizer.get_vocab().items()))
    return hashlib.sha256(vocabulary.encode()).hexdigest()[:32]


def hub_snapshot(hub_id: str) -> Path:
    """Return the folder of a model that was fetched from the hub before.

    Raises:
        TargetError: its files are not on this machine.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return Path(snapshot_download(hub_id, local_files_only=True))
    except LocalEntryNotFoundError as error:
        raise TargetError(
            f"{hub_id}: the hub's files are not on this machine; load the model once, or {_CHOICES}"
        ) from error
