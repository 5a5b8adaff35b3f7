"""Which texts are read in which step, and a step's texts as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tts_orch.seeds import stream_seed
from tts_orch.training.drafters.feature_shards import Learned
from tts_orch.training.drafters.target_laws import Laws

__all__ = ["Step", "TrainingBatch", "assemble", "batches_by_length", "plan_steps"]


class Step(NamedTuple):
    """One step of the optimiser.

    Attributes:
        epoch: in which it is, from 0.
        texts: their numbers.
        n_laws: answer tokens in them.
    """

    epoch: int
    texts: Sequence[int]
    n_laws: int


@dataclass(frozen=True, slots=True)
class TrainingBatch:
    """Texts side by side, padded at the end.

    Attributes:
        token_ids: `[B, T]` of tokens `t + 1`.
        features: `[B, T, layers * d]` of positions `t`.
        rows: `[N]` indices into `B * T` at which a law is learned.
        states: `[N, d]` last hidden states of the target at positions `t + 1`,
        laws: and their laws.
    """

    token_ids: Tensor
    features: Tensor
    rows: Tensor
    states: Tensor
    laws: Laws


def plan_steps(
    lengths: Sequence[int], n_laws: Sequence[int], batch_tokens: int, n_tokens: int, seed: int
) -> list[Step]:
    """Return the steps of a whole training: epochs in orders of their own, until so many answer tokens were read.

    Args:
        lengths: tokens of every text.
        n_laws: answer tokens of every text.
        batch_tokens: tokens of a step at most, padding included; a longer text has a step of its own.
        n_tokens: answer tokens to read.
        seed: fixes the orders.
    """
    steps: list[Step] = []
    epoch = 0
    while n_tokens > 0:
        for texts in batches_by_length(lengths, batch_tokens, stream_seed(seed, epoch, "order of batches")):
            steps.append(Step(epoch, texts, sum(n_laws[text] for text in texts)))
            n_tokens -= steps[-1].n_laws
            if n_tokens <= 0:
                break
        epoch += 1
    return steps


def batches_by_length(lengths: Sequence[int], batch_tokens: int, seed: int) -> list[list[int]]:
    """Return batches of texts of nearly equal lengths, all texts once, in random order.

    Lengths are blurred by a tenth, so that every epoch has other batches.
    """
    random = np.random.default_rng(seed)
    blurred = np.asarray(lengths) * random.uniform(0.9, 1.1, len(lengths))
    batches: list[list[int]] = []
    widest = 0
    for text in np.argsort(blurred).tolist():
        widest = max(widest, lengths[text])
        if batches and (len(batches[-1]) + 1) * widest <= batch_tokens:
            batches[-1].append(text)
        else:
            batches.append([text])
            widest = lengths[text]
    return [batches[i] for i in random.permutation(len(batches))]


def assemble(learned: Sequence[Learned], device: torch.device) -> TrainingBatch:
    """Return texts as one batch of float32 features on a device; at least one text."""
    n_rows = max(len(one.token_ids) for one in learned) - 2
    width = learned[0].features.shape[1]
    token_ids = torch.zeros(len(learned), n_rows, dtype=torch.long)
    features = torch.zeros(len(learned), n_rows, width)
    for row, one in enumerate(learned):
        n = len(one.token_ids) - 2
        token_ids[row, :n] = one.token_ids[1:-1]
        features[row, :n] = one.features[:n]
    laws = Laws(*(torch.cat(parts) for parts in zip(*(one.laws for one in learned), strict=True)))
    return TrainingBatch(
        token_ids.to(device),
        features.to(device),
        torch.cat([*_law_rows(learned, n_rows)]).to(device),
        torch.cat([one.states for one in learned]).to(device),
        Laws(*(tensor.to(device) for tensor in laws)),
    )


def _law_rows(learned: Sequence[Learned], n_rows: int) -> Iterator[Tensor]:
    for number, one in enumerate(learned):
        yield number * n_rows + torch.arange(one.first_law - 1, len(one.token_ids) - 2)
