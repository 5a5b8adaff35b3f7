"""The question as a reward model reads it: without the template that the target is prompted with."""

from __future__ import annotations

from tts_orch.records import Problem
from tts_orch.tasks.choice_task import with_choices

__all__ = ["question_text"]


def question_text(problem: Problem) -> str:
    """Return the prompt, or what chat messages say apart from the system's, with the choices of a multiple-choice problem."""
    if problem.prompt is not None:
        return with_choices(problem.prompt.strip(), problem.choices)
    turns = [turn["content"] for turn in problem.messages or () if turn["role"] != "system"]
    return with_choices("\n\n".join(turns).strip(), problem.choices)
