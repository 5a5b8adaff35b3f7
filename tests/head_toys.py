"""Texts, targets and heads for tests of the training of draft heads."""

from __future__ import annotations

import numpy as np
import torch

from tests.toys import VOCABULARY_SIZE, toy_llama
from tts_orch.drafters import draft_heads
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.training.drafters.training_sequences import TrainingSequence
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary


def frozen_toy() -> FrozenTarget:
    """Return the toy target as training reads it."""
    return FrozenTarget(toy_llama(torch.float32), VOCABULARY_SIZE, "toy")


def sequence(n_prompt: int, n_answer: int, seed: int = 0, is_held_out: bool = False) -> TrainingSequence:
    tokens = np.random.default_rng(seed).integers(3, VOCABULARY_SIZE, n_prompt + n_answer).astype(np.int32)
    return TrainingSequence(tokens, n_prompt, len(tokens), is_held_out)


def new_head(seed: int = 0, architecture: str = "eagle", vocabulary: DraftVocabulary | None = None) -> DraftHead:
    torch.manual_seed(seed)
    size = vocabulary and vocabulary.size
    config = HeadConfig.for_target(toy_llama().config, architecture=architecture, draft_vocab_size=size)
    return draft_heads.new_head(config, vocabulary)


def some_tokens() -> DraftVocabulary:
    """Return a draft vocabulary of three quarters of the toy's tokens."""
    return DraftVocabulary(np.flatnonzero(np.arange(VOCABULARY_SIZE) % 4), VOCABULARY_SIZE)
