"""Folders of drafters: heads of our own, public heads of EAGLE-2, HASS and EAGLE-3, and small language models of transformers.

A head's folder has `config.json` and `model.safetensors`; what it shares with its target stays with the target. Whatever does
not fit the target is refused in one line, before it drafts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.torch import load_file, save

from tts_orch.atomic_file import write_atomically
from tts_orch.drafters.causal_lm import load_causal_lm
from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle_network import head_network
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.public_checkpoints import public_head_file, read_public_head
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.drafters.trimming import trimmed_head
from tts_orch.drafters.vocabulary_maps import map_weights, take_vocabulary
from tts_orch.errors import ConfigError, first_line
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["is_own_head", "load_head", "load_network", "read_head", "save_head"]

_CONFIG: Final = "config.json"
_WEIGHTS: Final = "model.safetensors"


def load_network(folder: Path, target: TargetFacts) -> HeadNetwork:
    """Load a drafter for a target.

    Raises:
        ConfigError: there is none, it is damaged, or it is for another target.
    """
    head = load_head(folder, target)
    return load_causal_lm(folder, target) if head is None else head_network(head, target)


def load_head(folder: Path, target: TargetFacts) -> DraftHead | None:
    """Load a head of our own, or a published one, for a target; None from the folder of a whole language model.

    Raises:
        ConfigError: there is none, it is damaged, or it is for another target.
    """
    config = _read_config(folder)
    if is_own_head(folder):
        head = read_head(folder)
    elif file := public_head_file(folder):
        head = read_public_head(file, config, target)
    else:
        return None
    check_fits(folder, head, target)
    return _without_padding(head, target)


def is_own_head(folder: Path) -> bool:
    """Tell whether a folder is one that `save_head` wrote.

    Raises:
        ConfigError: it is no folder of a drafter.
    """
    return "architecture" in _read_config(folder)


def save_head(folder: Path, head: DraftHead) -> None:
    """Write a head into an existing folder, its configuration last.

    Raises:
        RunError: the folder cannot be written.
    """
    weights = {name: weight.detach().cpu().contiguous() for name, weight in head.state_dict().items()}
    write_atomically(folder / _WEIGHTS, save({**weights, **map_weights(head.vocabulary)}))
    write_atomically(folder / _CONFIG, json.dumps(head.config.to_json(), indent=2) + "\n")


def read_head(folder: Path) -> DraftHead:
    """Read a head that `save_head` wrote, on the CPU.

    Raises:
        ConfigError: there is none, it is damaged, or the maps of its vocabulary disagree.
    """
    config = HeadConfig.from_json(_read_config(folder), str(folder / _CONFIG))
    try:
        weights = load_file(folder / _WEIGHTS)
        head = new_head(config, take_vocabulary(weights, config, folder / _WEIGHTS))
        head.load_state_dict(weights, assign=True)
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ConfigError(
            f"{folder / _WEIGHTS}: not the weights of a draft head ({first_line(error)}); train or fetch it again"
        ) from None
    return head


def check_fits(folder: Path, head: DraftHead, target: TargetFacts) -> None:
    """Refuse a head that was made for another target.

    Raises:
        ConfigError: says what differs.
    """
    config, rows = head.config, len(target.embedding)
    if config.feature_size != target.hidden_size:
        raise ConfigError(
            f"{folder}: hidden_size is {config.feature_size}, the target's {target.hidden_size}; take a head of this target"
        )
    if config.hidden_size != target.hidden_size and not config.has_embedding:
        raise ConfigError(
            f"{folder}: of another width than the target, without embed_tokens of its own; take another head"
        )
    if not target.vocab_size <= config.vocab_size <= rows:
        raise ConfigError(
            f"{folder}: vocab_size is {config.vocab_size}, the target has {target.vocab_size} tokens; take a head of this target"
        )
    if head.vocabulary is not None and head.vocabulary.vocab_size < target.vocab_size:
        raise ConfigError(
            f"{folder}: its draft vocabulary is one of {head.vocabulary.vocab_size} tokens, the target has "
            f"{target.vocab_size}; take a head of this target"
        )
    if not all(-1 <= layer < target.n_layers for layer in config.feature_layers):
        raise ConfigError(f"{folder}: feature_layers {list(config.feature_layers)} are not layers of this target")
    for name, own, its in (
        ("weights", config.target_weights_id, target.weights_id),
        ("tokenizer", config.target_tokenizer_id, target.tokenizer_id),
    ):
        if own and its and own != its:
            raise ConfigError(f"{folder}: trained for a target with other {name}; train a head for this target")


def _without_padding(head: DraftHead, target: TargetFacts) -> DraftHead:
    """Drop columns of rows that only fill up the target's embedding: no text has these tokens."""
    vocabulary = head.vocabulary
    if vocabulary is None or vocabulary.ids[-1] < target.vocab_size:
        return head
    real = vocabulary.ids[vocabulary.ids < target.vocab_size]
    return trimmed_head(head, DraftVocabulary(real, vocabulary.vocab_size))


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config = json.loads((folder / _CONFIG).read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or first_line(error)
        raise ConfigError(f"{folder / _CONFIG}: {reason}; give the folder of a drafter") from None
    if not isinstance(config, dict):
        raise ConfigError(f"{folder / _CONFIG}: not a configuration; give the folder of a drafter")
    return config
