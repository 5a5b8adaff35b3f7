"""The draft vocabulary among the weights of a head: maps `d2t` and `t2d`, checked before anything relies on them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["map_weights", "take_vocabulary"]


def map_weights(vocabulary: DraftVocabulary | None) -> dict[str, Tensor]:
    """Return the maps of a vocabulary by their names among weights; none of no vocabulary."""
    if vocabulary is None:
        return {}
    return {"d2t": torch.from_numpy(vocabulary.d2t), "t2d": torch.from_numpy(vocabulary.t2d)}


def take_vocabulary(weights: dict[str, Tensor], config: HeadConfig, file: Path) -> DraftVocabulary | None:
    """Take the maps out of the weights of a head, and return their vocabulary; None for a head of all tokens.

    Raises:
        ConfigError: maps are missing, disagree with each other, or are of another size than the configuration says.
    """
    d2t, t2d = weights.pop("d2t", None), weights.pop("t2d", None)
    if d2t is None and t2d is None and config.draft_vocab_size in (None, config.vocab_size):
        return None
    if d2t is None or t2d is None:
        missing = "d2t" if d2t is None else "t2d"
        raise ConfigError(
            f"{file}: a head of {config.draft_vocab_size} tokens without {missing}; take one with its maps"
        )
    vocabulary = DraftVocabulary.from_maps(d2t.numpy(), t2d.numpy(), str(file))
    if vocabulary.size != config.draft_vocab_size:
        raise ConfigError(
            f"{file}: maps of {vocabulary.size} tokens, but draft_vocab_size is {config.draft_vocab_size}; take a head "
            "whose files belong together"
        )
    if vocabulary.vocab_size > config.vocab_size:
        raise ConfigError(
            f"{file}: maps to {vocabulary.vocab_size} tokens, but vocab_size is {config.vocab_size}; take a head whose "
            "files belong together"
        )
    return vocabulary
