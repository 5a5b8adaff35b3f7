"""Train a draft head, alone or in a team, with checkpoints that it resumes from exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.errors import RunError
from tts_orch.seeds import stream_seed
from tts_orch.training.drafters.batch_loss import batch_loss
from tts_orch.training.drafters.batches import Step, TrainingBatch, assemble, plan_steps
from tts_orch.training.drafters.draft_accuracy import DraftAccuracy, judged_head
from tts_orch.training.drafters.settings import DraftHeadSettings
from tts_orch.training.drafters.target_ends import TargetEnds
from tts_orch.training.drafters.training_state import restored_reports, save_state
from tts_orch.training.drafters.training_texts import TrainingTexts

__all__ = ["Alone", "HeadTraining", "Report", "Team"]


class Report(NamedTuple):
    """How far a training is.

    Attributes:
        step: steps done,
        n_steps: of so many.
        loss: mean over the answer tokens of the steps since the last report.
        learning_rate: of the last step.
        accuracy: on the held-out texts.
    """

    step: int
    n_steps: int
    loss: float
    learning_rate: float
    accuracy: DraftAccuracy

    def to_json(self) -> dict[str, Any]:
        """Return a line of `training.jsonl`."""
        values = {"step": self.step, "steps": self.n_steps, "loss": round(self.loss, 5)}
        return {**values, "learning_rate": self.learning_rate, **self.accuracy.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Report:
        """Read what `to_json` returned."""
        accuracy = DraftAccuracy(tuple(values["acceptance"]), values["tau"])
        return cls(values["step"], values["steps"], values["loss"], values["learning_rate"], accuracy)


class Team(Protocol):
    """Those who compute every step together."""

    rank: int
    size: int

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all members."""
        ...

    def wait(self) -> None:
        """Wait until all members have come here."""
        ...


class Alone:
    """A team of one."""

    rank = 0
    size = 1

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        """Leave the tensors as they are."""

    def wait(self) -> None:
        """Go on."""


@dataclass(frozen=True, slots=True)
class HeadTraining:
    """A training: all that its result depends on.

    Attributes:
        texts: to learn from.
        held_out: for the reports.
        ends: of the target, for the head's vocabulary, on the device of the training.
        settings: losses and pace.
        seed: fixes the order of the texts and the noise.
    """

    texts: TrainingTexts
    held_out: TrainingTexts
    ends: TargetEnds
    settings: DraftHeadSettings
    seed: int

    def run(
        self, head: DraftHead, checkpoint: Path, team: Team, on_reports: Callable[[Sequence[Report]], None]
    ) -> list[Report]:
        """Train a head in place and return all reports; stopped at any time and called again, it ends with the same weights.

        Args:
            head: with its first weights, on the device.
            checkpoint: file of the training's state, which all members see.
            team: who computes each step.
            on_reports: called in every member with all reports, when there is a new one and a checkpoint with it, and first
                with those of a checkpoint that is there.

        Raises:
            ConfigError: the checkpoint is of a head for another draft vocabulary.
            RunError: the loss is no number any more.
        """
        steps = self._steps()
        optimiser = torch.optim.AdamW(
            head.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=self.settings.weight_decay
        )
        reports = [Report.from_json(values) for values in restored_reports(checkpoint, head, optimiser)]
        n_done = reports[-1].step if reports else 0
        if reports:
            on_reports(reports)
        total, n_laws = torch.zeros((), device=self._device), 0
        for number, step in enumerate(steps[n_done:], start=n_done + 1):
            rate = self.settings.learning_rate * _pace(number / (len(steps) + 1), self.settings.warm_up)
            for group in optimiser.param_groups:
                group["lr"] = rate
            total += self._step(head, optimiser, step, team)
            n_laws += step.n_laws
            if number % self.settings.report_every == 0 or number == len(steps):
                reports.append(self._report(number, len(steps), float(total) / n_laws, rate, head))
                if team.rank == 0:
                    save_state(checkpoint, head, optimiser, [report.to_json() for report in reports])
                on_reports(reports)
                total, n_laws = torch.zeros_like(total), 0
        return reports

    def _report(self, step: int, n_steps: int, loss: float, rate: float, head: DraftHead) -> Report:
        if not math.isfinite(loss):
            raise RunError("the training diverged; give a smaller learning_rate, and another --out")
        accuracy = judged_head(head, self.held_out, self.ends, self.settings.batch_tokens)
        return Report(step, n_steps, loss, rate, accuracy)

    @property
    def _device(self) -> torch.device:
        return self.ends.device

    def _steps(self) -> list[Step]:
        settings, n_laws = self.settings, self.texts.n_laws
        n_tokens = settings.token_passes or round(settings.epochs * sum(n_laws) * settings.n_passes)
        return plan_steps(
            self.texts.lengths, n_laws, settings.batch_tokens, math.ceil(n_tokens / settings.n_passes), self.seed
        )

    def _step(self, head: DraftHead, optimiser: torch.optim.Optimizer, step: Step, team: Team) -> Tensor:
        """Do one step and return its loss, summed over answer tokens."""
        optimiser.zero_grad()
        mine = step.texts[team.rank :: team.size]
        loss = torch.zeros((), device=self._device)
        if mine:
            batch = assemble([self.texts.read(text) for text in mine], self._device)
            if self.settings.loss != "eagle3":
                self._add_noise(batch, step.epoch, mine)
            summed = batch_loss(head, batch, self.ends, self.settings)
            (summed / step.n_laws).backward()
            loss = summed.detach()
        gradients = [_gradient(parameter) for parameter in head.parameters()]
        team.add_up([*gradients, loss])
        nn.utils.clip_grad_norm_(head.parameters(), self.settings.clip)
        optimiser.step()
        return loss

    def _add_noise(self, batch: TrainingBatch, epoch: int, texts: Sequence[int]) -> None:
        """Blur the features by noise that depends on the text and the epoch alone, not on who reads it."""
        for row, text in zip(batch.features, texts, strict=True):
            generator = torch.Generator().manual_seed(stream_seed(self.seed, epoch, f"noise of text {text}"))
            n_rows = self.texts.lengths[text] - 2
            noise = torch.rand(n_rows, row.shape[-1], generator=generator) - 0.5
            row[:n_rows] += self.settings.noise * noise.to(row.device)


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _pace(progress: float, warm_up: float) -> float:
    """Return the share of the largest learning rate, after a share of the steps."""
    return progress / warm_up if progress < warm_up else (1 - progress) / (1 - warm_up)
