"""Settings of the task: what kind of answer problems have, how they are asked for it, and where it begins."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from tts_orch.settings import Settings

__all__ = ["DEFAULT_TASK", "TaskConfig", "TaskName"]

TaskName: TypeAlias = Literal["auto", "math", "choice", "code", "text"]


class TaskConfig(Settings):
    """What kind of answer problems have, how they are asked for it, and where it begins."""

    task: TaskName = "auto"
    """What kind of answer problems have; `auto` tells it by each problem: code where it has `tests`, choice where it has
    `choices`, text in domains such as chat, math elsewhere."""
    instructions: Literal["auto", "always", "never"] = "auto"
    """Append a sentence that says in which form to answer: `always`, `never`, or where a problem cannot be answered without
    it (`auto`)."""
    end_of_thinking: str = "auto"
    """The mark after which a thinking model answers; nothing before it is an answer. `auto` finds it in the target's
    tokenizer; an empty text says that there is none."""


DEFAULT_TASK: Final = TaskConfig()
