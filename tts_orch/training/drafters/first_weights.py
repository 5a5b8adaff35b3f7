"""What a head begins with."""

from __future__ import annotations

from typing import Final

import torch

from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.seeds import stream_seed
from tts_orch.training.drafters.target_ends import TargetEnds
from tts_orch.training.drafters.training_texts import TrainingTexts
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["first_head"]

_MEASURED: Final = 16  # texts


def first_head(
    config: HeadConfig, vocabulary: DraftVocabulary | None, ends: TargetEnds, texts: TrainingTexts, seed: int
) -> DraftHead:
    """Return a head with random weights, on the device of the target's ends.

    A head of EAGLE-3 begins with the target's rows as its LM head, and reads all channels of hidden states as if they were of
    one size: a few of them are a thousand times larger than others, and a short training would not find the others.

    Args:
        config: its shape.
        vocabulary: tokens that it may propose; None for all.
        ends: of the target, for this vocabulary.
        texts: to learn from; the first tell how large channels are.
        seed: fixes the rest.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, 0, "first weights"))
        head = new_head(config, vocabulary)
    if isinstance(head, Eagle3Head):
        measured = torch.cat([texts.read(number).features for number in range(min(_MEASURED, len(texts.lengths)))])
        with torch.no_grad():
            head.lm_head.weight[: len(ends.output)] = ends.output.to(head.lm_head.weight)
            head.fc.weight /= measured.square().mean(dim=0).sqrt().clamp_min(1e-3)
    return head.to(ends.device)
