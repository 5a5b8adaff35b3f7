"""The course of a training as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tts_orch.figures import load_figures
from tts_orch.training.drafters.head_training import Report

__all__ = ["draw_training"]


def draw_training(reports: Sequence[Report], file: Path) -> None:
    """Draw the loss, and how far greedy drafts are right on held-out texts.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figure = load_figures().Figure(figsize=(10, 4), layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    steps = [report.step for report in reports]
    losses.plot(steps, [report.loss for report in reports])
    _label(losses, "loss of an answer token", None)
    for depth in range(len(reports[0].accuracy.acceptance)):
        shares = [report.accuracy.acceptance[depth] for report in reports]
        accuracies.plot(steps, shares, label=f"the first {depth + 1}" if depth else "the first")
    _label(accuracies, "share of right drafts, held-out texts", 0.0)
    title = f"tau {reports[-1].accuracy.tau:.2f} at the end"
    accuracies.legend(title=title, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(file, dpi=120)


def _label(axes: Any, title: str, bottom: float | None) -> None:
    axes.set(title=title, xlabel="step")
    axes.set_ylim(bottom=bottom)
    axes.grid(alpha=0.3)
