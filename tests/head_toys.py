"""Texts, targets and heads for tests of the training of draft heads."""

from __future__ import annotations

import numpy as np
import torch

from tests.toys import VOCABULARY_SIZE, toy_llama
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.training.drafters.training_sequences import TrainingSequence


def frozen_toy() -> FrozenTarget:
    """Return the toy target as training reads it."""
    return FrozenTarget(toy_llama(torch.float32), VOCABULARY_SIZE, "toy")


def sequence(n_prompt: int, n_answer: int, seed: int = 0, is_held_out: bool = False) -> TrainingSequence:
    tokens = np.random.default_rng(seed).integers(3, VOCABULARY_SIZE, n_prompt + n_answer).astype(np.int32)
    return TrainingSequence(tokens, n_prompt, len(tokens), is_held_out)


def new_head(seed: int = 0) -> EagleHead:
    torch.manual_seed(seed)
    return EagleHead(HeadConfig.for_target(toy_llama().config))
