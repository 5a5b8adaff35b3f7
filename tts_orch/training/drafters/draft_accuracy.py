"""How far greedy drafts of a head would be right, on held-out texts."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.training.drafters.aligned_passes import aligned_passes
from tts_orch.training.drafters.batches import assemble, batches_by_length
from tts_orch.training.drafters.losses import most_probable
from tts_orch.training.drafters.target_ends import TargetEnds
from tts_orch.training.drafters.training_texts import TrainingTexts

__all__ = ["DEPTHS", "DraftAccuracy", "judged_head"]

DEPTHS: Final = 5


class DraftAccuracy(NamedTuple):
    """What a chain of `DEPTHS` tokens is worth, drafted greedily at every position of an answer.

    The head reads the text, its own features of positions it drafted, and is right where its most probable token is the
    target's: never where the target's is none that it may propose. So for answers of the target at temperature 0 this is what a verify step would accept.

    Attributes:
        acceptance: share of drafts whose first d tokens are all right, for d from 1.
        tau: tokens of a verify step, the one that needs no draft included.
    """

    acceptance: tuple[float, ...]
    tau: float

    def to_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {"acceptance": [round(share, 4) for share in self.acceptance], "tau": round(self.tau, 4)}


@torch.inference_mode()
def judged_head(head: DraftHead, texts: TrainingTexts, ends: TargetEnds, batch_tokens: int) -> DraftAccuracy:
    """Measure a head.

    Args:
        head: on the device of the target's ends.
        texts: that it has not learned from.
        ends: of the target, for the head's vocabulary.
        batch_tokens: tokens of a pass at most, padding included.
    """
    n_right, n_drafts = torch.zeros(DEPTHS, dtype=torch.long), torch.zeros(DEPTHS, dtype=torch.long)
    rows = head.lm_head.weight.to(ends.output.dtype) if isinstance(head, Eagle3Head) else ends.output
    for numbers in batches_by_length(texts.lengths, batch_tokens, seed=0):
        batch = assemble([texts.read(number) for number in numbers], ends.device)
        is_row = torch.zeros(batch.token_ids.shape, dtype=torch.bool, device=batch.rows.device)
        is_row.view(-1)[batch.rows] = True
        is_right = is_drafted = is_row.new_ones(is_row.shape)  # of the shorter drafts that end a position earlier
        passes = aligned_passes(head, ends.embedding[batch.token_ids].float(), batch.features, DEPTHS)
        with ends.autocast():
            for depth, predicted in enumerate(passes):
                states = predicted.flatten(0, 1)[batch.rows]
                guesses = most_probable(head.normed(states) if isinstance(head, Eagle3Head) else states, rows)
                is_match = torch.zeros_like(is_row)
                is_match.view(-1)[batch.rows] = guesses == ends.columns[batch.laws.top_ids[:, 0]]
                is_drafted, is_right = is_drafted & is_row, is_right & is_match
                n_right[depth] += int(is_right.sum())
                n_drafts[depth] += int(is_drafted.sum())
                is_right, is_drafted = _moved(is_right), _moved(is_drafted)
    acceptance = (n_right / n_drafts.clamp_min(1)).tolist()
    return DraftAccuracy(tuple(acceptance), 1 + sum(acceptance))


def _moved(flags: Tensor) -> Tensor:
    """Move flags `[B, T]` to the next position."""
    return torch.cat([torch.zeros_like(flags[:, :1]), flags[:, :-1]], dim=1)
