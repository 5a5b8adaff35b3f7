"""What a head of each architecture loses on a batch of texts."""

from __future__ import annotations

import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.training.drafters.aligned_passes import aligned_passes
from tts_orch.training.drafters.batches import TrainingBatch
from tts_orch.training.drafters.losses import feature_loss, law_loss
from tts_orch.training.drafters.settings import DraftHeadSettings
from tts_orch.training.drafters.soft_cross_entropy import soft_cross_entropy
from tts_orch.training.drafters.target_ends import TargetEnds
from tts_orch.training.drafters.target_laws import laws_of

__all__ = ["batch_loss"]


def batch_loss(head: DraftHead, batch: TrainingBatch, ends: TargetEnds, settings: DraftHeadSettings) -> Tensor:
    """Return the loss, summed over answer tokens and passes.

    Laws are learned where the target's most probable token is one that the head may propose.

    Args:
        head: learns.
        batch: the texts, with features of the head's layers.
        ends: of the target, for the head's vocabulary.
        settings: weights, and how many passes there are.
    """
    is_inside = ends.columns[batch.laws.top_ids[:, 0]] >= 0
    embeddings = ends.embedding[batch.token_ids].float()
    with ends.autocast():
        passes = aligned_passes(head, embeddings, batch.features, settings.n_passes)
        predicted = torch.stack([one.flatten(0, 1)[batch.rows] for one in passes])
        if isinstance(head, Eagle3Head):
            return _own_laws(head, predicted[:, is_inside], batch.states[is_inside], ends, settings.step_decay)
        return _shared_laws(predicted.float(), is_inside, batch, ends, settings)


def _own_laws(head: Eagle3Head, predicted: Tensor, targets: Tensor, ends: TargetEnds, decay: float) -> Tensor:
    """EAGLE-3: the head's own laws, later passes weighing less."""
    weights = decay ** torch.arange(len(predicted), device=predicted.device, dtype=torch.float32)
    rows = head.lm_head.weight[: len(ends.output)]  # behind them are those of no token at all
    return soft_cross_entropy(head.normed(predicted), rows, targets, ends.output, weights)


def _shared_laws(
    predicted: Tensor, is_inside: Tensor, batch: TrainingBatch, ends: TargetEnds, settings: DraftHeadSettings
) -> Tensor:
    """EAGLE-2 and HASS: features, and what the target's LM head makes of them."""
    laws = laws_of(batch.states[is_inside], ends.output) if ends.is_trimmed else batch.laws
    top_weight = settings.top_weight if settings.loss == "hass" else 0.0
    loss = predicted.new_zeros(())
    for one in predicted:
        loss = loss + settings.feature_weight * feature_loss(one, batch.states)
        loss = loss + law_loss(one[is_inside], laws, ends.output, settings.law_weight, top_weight)
    return loss
