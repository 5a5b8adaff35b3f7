"""What a head begins with."""

from __future__ import annotations

import torch

from tts_orch.drafters.draft_heads import DraftHead, new_head
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.seeds import stream_seed
from tts_orch.training.drafters.target_ends import TargetEnds
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

__all__ = ["first_head"]


def first_head(config: HeadConfig, vocabulary: DraftVocabulary | None, ends: TargetEnds, seed: int) -> DraftHead:
    """Return a head with random weights, on the device of the target's ends; the LM head of EAGLE-3 has the target's rows.

    Args:
        config: its shape.
        vocabulary: tokens that it may propose; None for all.
        ends: of the target, for this vocabulary.
        seed: fixes the rest.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_seed(seed, 0, "first weights"))
        head = new_head(config, vocabulary)
    if isinstance(head, Eagle3Head):
        with torch.no_grad():
            head.lm_head.weight[: len(ends.output)] = ends.output.to(head.lm_head.weight)
    return head.to(ends.device)
