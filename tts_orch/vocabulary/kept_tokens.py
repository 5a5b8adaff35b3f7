"""Tokens that every draft vocabulary keeps, whatever the texts have of them.

What ends a text or a step, and what a chat is made of, decides where decoding goes; digits are spread so evenly, and matter so
much, that counting them in one set of texts says little of another.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from tts_orch.errors import ConfigError

__all__ = ["kept_tokens"]

_DIGITS: Final = re.compile(r"\s*[0-9]+")
_ROLES: Final = ("system", "user", "assistant")


def kept_tokens(
    tokenizer: Any, vocab_size: int, stop_ids: Iterable[int], delimiters: Sequence[str], wanted: Sequence[str]
) -> dict[str, list[int]]:
    """Return the kept ids by the reason why; an id may have several.

    Args:
        tokenizer: the target's.
        vocab_size: ids are below it.
        stop_ids: ids that end a text.
        delimiters: texts that end a step.
        wanted: numbers of tokens, and texts, all tokens of which are kept.

    Raises:
        ConfigError: one of `wanted` is no token.
    """
    texts = tokenizer.batch_decode([[i] for i in range(min(vocab_size, len(tokenizer)))])
    reasons: Mapping[str, Iterable[int]] = {
        "special": tokenizer.all_special_ids,
        "template": _template_ids(tokenizer),
        "stop": stop_ids,
        "digits": [i for i, text in enumerate(texts) if _DIGITS.fullmatch(text)],
        "delimiters": [
            *(i for i, text in enumerate(texts) if any(delimiter in text for delimiter in delimiters)),
            *(i for delimiter in delimiters for i in _ids(tokenizer, delimiter)),
        ],
        "wanted": [i for one in wanted for i in _wanted_ids(tokenizer, vocab_size, one)],
    }
    return {reason: sorted({int(i) for i in ids if i < vocab_size}) for reason, ids in reasons.items()}


def _template_ids(tokenizer: Any) -> list[int]:
    """Return what the chat template writes around the turns of a conversation that says nothing."""
    if not tokenizer.chat_template:
        return []
    for roles in (_ROLES, _ROLES[1:]):  # not every template takes a system's turn
        turns = [{"role": role, "content": ""} for role in roles]
        with suppress(Exception):  # templates refuse in ways of their own
            return _ids(tokenizer, tokenizer.apply_chat_template(turns, tokenize=False))
    return []


def _wanted_ids(tokenizer: Any, vocab_size: int, one: str) -> list[int]:
    if not one.isdecimal():
        return _ids(tokenizer, one)
    if int(one) >= vocab_size:
        raise ConfigError(
            f"keep: there is no token {one}, the target has {vocab_size}; give a smaller number, or a text"
        )
    return [int(one)]


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids
