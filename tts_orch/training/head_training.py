"""Train a process reward head on hidden states, with a checkpoint after every epoch that it resumes from exactly."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from tts_orch.atomic_file import write_atomically
from tts_orch.rewards.process_head import ProcessHead
from tts_orch.seeds import stream_seed
from tts_orch.training.settings import HeadSettings
from tts_orch.training.step_features import StepData

__all__ = ["train_head"]


def train_head(
    data: StepData, settings: HeadSettings, seed: int, checkpoint: Path, on_epoch: Callable[[int, float], None]
) -> ProcessHead:
    """Return a head trained by cross-entropy against the labels, soft ones too.

    Stopped at any time and called again, it ends with the same weights as an unbroken training.

    Args:
        data: training steps.
        settings: of the head and its training.
        seed: fixes the first weights and the order of the steps.
        checkpoint: file of the training's state; its folder is there.
        on_epoch: called with the number of epochs done, and the mean loss of the last one.
    """
    head = _new_head(data, settings, seed)
    optimiser = torch.optim.AdamW(head.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    for epoch in range(_restore(checkpoint, head, optimiser), settings.epochs):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * (1 - epoch / settings.epochs)
        loss = _train_epoch(head, optimiser, data, settings.batch_size, stream_seed(seed, epoch, "order of steps"))
        _save(checkpoint, head, optimiser, epoch + 1)
        on_epoch(epoch + 1, loss)
    return head.eval().requires_grad_(False)


def _new_head(data: StepData, settings: HeadSettings, seed: int) -> ProcessHead:
    """Return a head that standardises by the training steps and says the same of all of them at first, or nearly so."""
    head = ProcessHead(data.features.shape[1], settings.width if settings.kind == "mlp" else 0)
    head.mean.copy_(data.features.mean(0))
    head.scale.copy_(data.features.std(0, correction=0).clamp_min(1e-6))
    generator = torch.Generator().manual_seed(stream_seed(seed, 0, "first weights"))
    with torch.no_grad():
        for parameter in head.parameters():
            bound = 1 / math.sqrt(parameter.shape[-1]) if parameter.dim() > 1 and len(parameter) > 1 else 0.0
            parameter.uniform_(-bound, bound, generator=generator)
    return head


def _train_epoch(
    head: ProcessHead, optimiser: torch.optim.Optimizer, data: StepData, batch_size: int, seed: int
) -> float:
    order = torch.randperm(len(data.labels), generator=torch.Generator().manual_seed(seed))
    total = 0.0
    for batch in order.split(batch_size):
        optimiser.zero_grad()
        loss = binary_cross_entropy_with_logits(head(data.features[batch]), data.labels[batch])
        loss.backward()
        optimiser.step()
        total += loss.item() * len(batch)
    return total / len(order)


def _save(checkpoint: Path, head: ProcessHead, optimiser: torch.optim.Optimizer, n_epochs: int) -> None:
    content = io.BytesIO()
    torch.save({"epochs": n_epochs, "head": head.state_dict(), "optimiser": optimiser.state_dict()}, content)
    write_atomically(checkpoint, content.getvalue())


def _restore(checkpoint: Path, head: ProcessHead, optimiser: torch.optim.Optimizer) -> int:
    """Load the state and return how many epochs are done; 0 without a checkpoint."""
    if not checkpoint.exists():
        return 0
    state = torch.load(checkpoint, weights_only=True)
    head.load_state_dict(state["head"])
    optimiser.load_state_dict(state["optimiser"])
    return int(state["epochs"])
