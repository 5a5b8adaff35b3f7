"""Turn a problem into the target's prompt tokens."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

import numpy as np

from tts_orch.errors import ProblemError, first_line
from tts_orch.records import IntArray, Problem
from tts_orch.task_config import DEFAULT_TASK, TaskConfig
from tts_orch.tasks.registry import task_of

__all__ = ["Tokenizer", "render"]


class Tokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    chat_template: Any

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> Mapping[str, Any]:
        """Return `input_ids` of a text."""
        ...

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> Any:
        """Return the text of a conversation, ready for the assistant's turn."""
        ...


def render(
    problem: Problem,
    tokenizer: Tokenizer,
    template: Literal["auto", "raw", "chat"] = "auto",
    task: TaskConfig = DEFAULT_TASK,
) -> IntArray:
    """Return the prompt's token ids.

    Args:
        problem: its `choices` are appended as lettered lines unless the prompt shows them already.
        tokenizer: the target's.
        template: `chat` uses the target's chat template; `raw` takes the text with the special tokens that the tokenizer
            adds by itself; `auto` is `chat` for `messages`, and for plain prompts where the target has a template.
        task: what kind of answer is asked for; an instruction for it is appended too where its settings say so.

    Returns:
        `[n]` int32, never empty.

    Raises:
        ProblemError: the problem cannot be rendered this way.
    """
    is_chat = template == "chat" or (
        template == "auto" and (problem.messages is not None or bool(tokenizer.chat_template))
    )
    ask = functools.partial(_asked, problem, task, is_chat)
    if is_chat:  # the template writes the special tokens itself
        token_ids = tokenizer(_chat_text(problem, tokenizer, ask), add_special_tokens=False)["input_ids"]
    elif problem.prompt is not None:
        token_ids = tokenizer(ask(problem.prompt))["input_ids"]
    else:
        raise ProblemError(
            f"problem {problem.id!r} has `messages` only; use the template `chat`, or give it a `prompt`"
        )
    if not len(token_ids):
        raise ProblemError(f"problem {problem.id!r} has an empty prompt; give it a text")
    return np.asarray(token_ids, dtype=np.int32)


def _asked(problem: Problem, config: TaskConfig, is_chat: bool, text: str) -> str:
    """Return the text of the last turn, with what the task adds to it."""
    task = task_of(problem, config.task)
    question = task.question(problem, text)
    is_needed = config.instructions == "auto" and task.needs_instruction(problem, is_chat)
    if is_needed or config.instructions == "always":
        return f"{question.rstrip()}\n\n{task.instruction(problem)}"
    return question


def _chat_text(problem: Problem, tokenizer: Tokenizer, ask: Callable[[str], str]) -> str:
    if not tokenizer.chat_template:
        raise ProblemError(
            f"problem {problem.id!r}: the target has no chat template; use the template `raw` with a `prompt`"
        )
    *earlier, last = problem.messages or ({"role": "user", "content": problem.prompt or ""},)
    turns = [*map(dict, earlier), {**last, "content": ask(last["content"])}]
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of the target's author and may raise anything
        raise ProblemError(
            f"problem {problem.id!r}: the chat template refuses its turns ({first_line(error)}); mend `messages`"
        ) from None
