"""Thinking models: where in an output the answer begins."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Protocol

__all__ = ["NO_THINKING", "Thinking", "ThinkingTokenizer", "after_any_thinking", "text_decoder", "thinking_of"]

_KNOWN_ENDS: Final = ("</think>", "</thinking>", "</thought>", "</reasoning>", "◁/think▷", "[/THINK]")


class ThinkingTokenizer(Protocol):
    """What is needed of a transformers tokenizer."""

    chat_template: Any
    all_special_tokens: list[str]

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool, clean_up_tokenization_spaces: bool) -> Any:
        """Return the text of tokens."""
        ...

    def get_added_vocab(self) -> dict[str, int]:
        """Return the ids of the tokens that are not pieces of text, by token."""
        ...

    def apply_chat_template(self, conversation: Any, *, tokenize: bool, add_generation_prompt: bool) -> Any:
        """Return the text of a conversation, ready for the assistant's turn."""
        ...


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model marks its thinking off.

    Attributes:
        end: the mark after which it answers; empty for a model that does not think.
        is_open: whether prompts end within the thinking, so that outputs begin there without a mark.
    """

    end: str = ""
    is_open: bool = False

    @property
    def start(self) -> str:
        """The mark that opens the thinking: that of its end without the slash."""
        return self.end.replace("/", "", 1)

    def answer_part(self, text: str) -> str:
        """Return what stands after the thinking, nothing while it is not at its end.

        Args:
            text: an output from its beginning on.
        """
        if not self.end:
            return text
        _, mark, answer = text.rpartition(self.end)
        if mark:
            return answer
        return "" if self.is_open or self.start in text else text


NO_THINKING: Final = Thinking()


def thinking_of(tokenizer: ThinkingTokenizer, end: str = "auto", template: str = "auto") -> Thinking:
    """Return how a target marks its thinking off.

    Args:
        tokenizer: the target's. A mark is known by its chat template, or as a token of its own.
        end: the mark, `auto` to find it, empty for none.
        template: how prompts are rendered; raw ones never end within the thinking.
    """
    if end == "auto":
        end = _found_end(tokenizer)
    is_chat = template != "raw" and bool(tokenizer.chat_template)
    thinking = Thinking(end)
    return Thinking(end, is_open=bool(end) and is_chat and _is_open(tokenizer, thinking))


def after_any_thinking(text: str) -> str:
    """Return what stands after the thinking in the output of a model that is not known, by the marks that are usual."""
    for end in _KNOWN_ENDS:
        text = Thinking(end).answer_part(text)
    return text


def text_decoder(tokenizer: ThinkingTokenizer, thinking: Thinking) -> Callable[[Sequence[int]], str]:
    """Return a function from tokens to text without special tokens, but with the marks of the thinking, special or not."""
    decode = functools.partial(tokenizer.decode, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    if not thinking.end or thinking.end not in tokenizer.all_special_tokens:
        return decode
    added = tokenizer.get_added_vocab()
    marks = {added[mark]: mark for mark in (thinking.start, thinking.end) if mark in added}

    def decode_between_marks(token_ids: Sequence[int]) -> str:
        pieces = groupby(token_ids, key=lambda token_id: marks.get(token_id, ""))
        return "".join(mark * len([*run]) if mark else decode([*run]) for mark, run in pieces)

    return decode_between_marks


def _found_end(tokenizer: ThinkingTokenizer) -> str:
    places = (str(tokenizer.chat_template or ""), tokenizer.get_added_vocab())
    return next((end for place in places for end in _KNOWN_ENDS if end in place), "")


def _is_open(tokenizer: ThinkingTokenizer, thinking: Thinking) -> bool:
    """Return whether the prompt of a short question ends within the thinking."""
    question = [{"role": "user", "content": "?"}]
    try:
        prompt = str(tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True))
    except Exception:  # a template is a program of the target's author; what it refuses is said where it is asked for
        return False
    return prompt.rfind(thinking.start) > prompt.rfind(thinking.end)
