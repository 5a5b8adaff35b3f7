"""Recordings of finished runs for commands: their targets loaded once, and a progress bar meanwhile."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from tts_orch.config import EngineConfig
from tts_orch.replay.recording import Recording
from tts_orch.replay.recovery import FinishedRun, recover

if TYPE_CHECKING:
    from tts_orch.engine.target import Target

__all__ = ["progress_bar", "recorded_target", "recovered", "target_of"]


def progress_bar(console: Console) -> Progress:
    """Return a bar that a terminal shows until it is done, and nothing else does."""
    columns = (TextColumn("{task.description}"), BarColumn(20), TaskProgressColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@cache
def target_of(config: EngineConfig) -> Target:
    """Return the loaded target of these settings, the same one every time."""
    from transformers.utils import logging  # these load torch

    from tts_orch.engine.target import load_target

    logging.disable_progress_bar()
    return load_target(config)


def recorded_target(run: FinishedRun) -> Target:
    """Return the target that decoded a run, loaded.

    Raises:
        UserError: the run's target is not what it was.
    """
    target = target_of(run.config.engine)
    run.check_target(target)
    return target


def recovered(run: FinishedRun, bar: Progress) -> Recording:
    """Return the recording of a run, with its own task on the bar.

    Raises:
        UserError: the run's target is not what it was.
    """
    task = bar.add_task(f"laws of the tokens of {run.folder}", total=len(run.problems))
    recording = recover(run, target_of, lambda done, total: bar.update(task, completed=done, total=total))
    bar.remove_task(task)
    return recording
