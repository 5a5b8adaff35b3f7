"""A trained head with fewer tokens to propose, without another training.

Source: arXiv 2603.05210 trains anew; that rows of a trained LM head may be dropped as well is VocabTrim's, arXiv 2506.22694.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["trimmed_head"]


def trimmed_head(head: DraftHead, vocabulary: DraftVocabulary) -> DraftHead:
    """Return a copy of a head that proposes the tokens of a vocabulary alone; all its other weights are the same.

    Of EAGLE-3's the LM head loses rows; EAGLE-2's and HASS's read fewer rows of the target's.

    Args:
        head: of all tokens, or of these and more.
        vocabulary: of the same target.

    Raises:
        ConfigError: the head is of another target, or has no row for some of the tokens.
    """
    if vocabulary.vocab_size > head.config.vocab_size:
        raise ConfigError(
            f"vocabulary: made for {vocabulary.vocab_size} tokens, but the head's target has {head.config.vocab_size}; take "
            "one of the same target"
        )
    try:
        rows = vocabulary.ids if head.vocabulary is None else head.vocabulary.columns(vocabulary.ids)
    except ValueError:
        raise ConfigError(
            f"vocabulary: some of its {vocabulary.size} tokens are not among the {head.config.draft_vocab_size} of the head; trim a "
            "head of all tokens"
        ) from None
    trimmed = new_head(replace(head.config, draft_vocab_size=vocabulary.size), vocabulary)
    weights = head.state_dict()
    if "lm_head.weight" in weights:
        weights["lm_head.weight"] = weights["lm_head.weight"][torch.from_numpy(rows)]
    trimmed.load_state_dict({name: weight.clone() for name, weight in weights.items()}, assign=True)
    return trimmed
