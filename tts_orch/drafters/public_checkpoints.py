"""Heads as the authors of EAGLE, EAGLE-2, HASS and EAGLE-3 publish them: a Llama configuration, and weights of a layer with `fc`.

Names of weights of the former three are those of `EagleHead`; copies of the target's embedding and LM head may come with them.
They must be copies of *this* target's, since the head never learned to read another one's.

Sources: arXiv 2401.15077, 2406.16858, 2408.15766.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.public_eagle3 import is_eagle3, public_eagle3
from tts_orch.drafters.rotary import known_scaling
from tts_orch.drafters.target_copies import is_embedding_of, is_lm_head_of
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.drafters.vocabulary_maps import take_vocabulary
from tts_orch.drafters.weight_files import in_one_line, opened_weights, weight_file
from tts_orch.errors import ConfigError

__all__ = ["public_head_file", "read_public_head"]

_MARK: Final = "fc.weight"
_EMBEDDING: Final = "embed_tokens.weight"
_LM_HEAD: Final = "lm_head.weight"


def public_head_file(folder: Path) -> Path | None:
    """Return a folder's file of weights; None if they are not those of a head, but of a whole language model.

    Raises:
        ConfigError: they cannot be read.
    """
    file = weight_file(folder)
    return file if file is not None and _MARK in opened_weights(file) else None


def read_public_head(file: Path, config: Mapping[str, Any], target: TargetFacts) -> DraftHead:
    """Read a published head.

    Args:
        file: its weights.
        config: its `config.json`.
        target: of which it must be.

    Raises:
        ConfigError: it is damaged, of another kind, or of another target.
    """
    weights = {name: read() for name, read in opened_weights(file).items() if "rotary_emb" not in name}
    if is_eagle3(set(weights)):
        return public_eagle3(file, weights, config, target)
    return _public_eagle(file, weights, config, target)


def _public_eagle(file: Path, weights: dict[str, Tensor], config: Mapping[str, Any], target: TargetFacts) -> EagleHead:
    _check_copies(file.parent, weights.pop(_EMBEDDING, None), weights.pop(_LM_HEAD, None), target)
    try:
        settings: dict[str, Any] = {
            "attention_bias": "layers.0.self_attn.q_proj.bias" in weights,
            "draft_vocab_size": config.get("draft_vocab_size"),
            "rope_scaling": known_scaling(config, file),
            "trained_by": {"published": file.parent.name},
        }
        shape = HeadConfig.for_target(SimpleNamespace(**config), **settings)
        head = EagleHead(shape, take_vocabulary(weights, shape, file))
        weights.setdefault("fc.bias", torch.zeros(head.config.hidden_size))
        head.load_state_dict(weights)
    except (AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"{file}: not a head of EAGLE-2, HASS or EAGLE-3 ({in_one_line(error)}); take one, or train it"
        ) from None
    return head


def _check_copies(folder: Path, embedding: Tensor | None, lm_head: Tensor | None, target: TargetFacts) -> None:
    """Refuse copies of another target's embedding or LM head."""
    if embedding is not None and not is_embedding_of(target, embedding):
        raise ConfigError(f"{folder}: its embed_tokens are not the target's; take a head of this target")
    if lm_head is not None and not is_lm_head_of(target, lm_head):
        raise ConfigError(
            f"{folder}: its lm_head is not the target's; heads with an LM head of their own are of another kind"
        )
