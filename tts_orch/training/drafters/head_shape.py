"""The shape of the head that a training makes for its target."""

from __future__ import annotations

from transformers import AutoConfig

from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import TargetError, first_line
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.settings import DrafterTrainingConfig
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["head_shape"]


def head_shape(config: DrafterTrainingConfig, base: BaseFiles, vocabulary: DraftVocabulary | None) -> HeadConfig:
    """Return the shape of a head as wide as a layer of the target.

    Args:
        config: names the target and the loss.
        base: files of the target.
        vocabulary: tokens that the head may propose; None for all.

    Raises:
        TargetError: no head can continue the target's hidden states.
    """
    target, text = config.engine.target, AutoConfig.from_pretrained(base.folder).get_text_config()
    width = getattr(text, "word_embed_proj_dim", base.hidden_size)
    if width != base.hidden_size:
        raise TargetError(
            f"{target}: its embeddings are {width} wide, its hidden states {base.hidden_size}, and a draft head reads both as "
            "one; choose another target"
        )
    try:
        return HeadConfig.for_target(
            text,
            architecture="eagle3" if config.head.loss == "eagle3" else "eagle",
            draft_vocab_size=vocabulary and vocabulary.size,
        )
    except AttributeError as error:
        raise TargetError(
            f"{target}: no draft head continues its layers ({first_line(error)}); choose a target with attention"
        ) from None
