"""Turn a problem into the target's prompt tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, Literal, Protocol

import numpy as np

from tts_orch.errors import ProblemError, first_line
from tts_orch.records import IntArray, Problem

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


def render(problem: Problem, tokenizer: Tokenizer, template: Literal["auto", "raw", "chat"] = "auto") -> IntArray:
    """Return the prompt's token ids.

    Args:
        problem: its `choices` are appended as lettered lines unless the prompt shows them already.
        tokenizer: the target's.
        template: `chat` uses the target's chat template; `raw` takes the text with the special tokens that the tokenizer
            adds by itself; `auto` is `chat` for `messages`, and for plain prompts where the target has a template.

    Returns:
        `[n]` int32, never empty.

    Raises:
        ProblemError: the problem cannot be rendered this way.
    """
    is_chat = template == "chat" or (
        template == "auto" and (problem.messages is not None or bool(tokenizer.chat_template))
    )
    if is_chat:  # the template writes the special tokens itself
        token_ids = tokenizer(_chat_text(problem, tokenizer), add_special_tokens=False)["input_ids"]
    elif problem.prompt is not None:
        token_ids = tokenizer(_with_choices(problem.prompt, problem.choices))["input_ids"]
    else:
        raise ProblemError(
            f"problem {problem.id!r} has `messages` only; use the template `chat`, or give it a `prompt`"
        )
    if not len(token_ids):
        raise ProblemError(f"problem {problem.id!r} has an empty prompt; give it a text")
    return np.asarray(token_ids, dtype=np.int32)


def _chat_text(problem: Problem, tokenizer: Tokenizer) -> str:
    if not tokenizer.chat_template:
        raise ProblemError(
            f"problem {problem.id!r}: the target has no chat template; use the template `raw` with a `prompt`"
        )
    *earlier, last = problem.messages or ({"role": "user", "content": problem.prompt or ""},)
    turns = [*map(dict, earlier), {**last, "content": _with_choices(last["content"], problem.choices)}]
    try:
        return str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # a template is a program of the target's author and may raise anything
        raise ProblemError(
            f"problem {problem.id!r}: the chat template refuses its turns ({first_line(error)}); mend `messages`"
        ) from None


def _with_choices(text: str, choices: Sequence[str] | None) -> str:
    if not choices or all(choice in text for choice in choices):
        return text
    lines = (f"{letter}. {choice}" for letter, choice in zip(ascii_uppercase, choices, strict=False))
    return "\n".join([text.rstrip(), *lines])
