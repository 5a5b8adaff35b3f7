"""Heads of every architecture, by the name that their configuration gives."""

from __future__ import annotations

from typing import TypeAlias

from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["DraftHead", "new_head"]

DraftHead: TypeAlias = EagleHead | Eagle3Head


def new_head(config: HeadConfig, vocabulary: DraftVocabulary | None = None) -> DraftHead:
    """Return a head with random weights."""
    kind = Eagle3Head if config.architecture == "eagle3" else EagleHead
    return kind(config, vocabulary)
