"""Token ids that a reward model reads, in pieces that are tokenised each by itself.

A solution that grew by a step is read as the same pieces and one more, so what was computed for the earlier ones stays
good; and a step's tokens do not depend on the separator behind it, as the models were trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tts_orch.errors import TargetError, first_line

__all__ = ["Segment", "chat_frame", "continued_tokens", "n_tokens_of", "plain_tokens", "start_tokens"]

Tokenizer: TypeAlias = Any
"""A transformers tokenizer; its types are wider than what is asked of it here."""

_CONTENT: Final = "@content@"  # stands for a turn's text while a chat template is rendered


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of what is read.

    Attributes:
        token_ids: its tokens, at least one.
        is_read: whether a score is taken at its end.
        tail: tokens between it and the place where the score is taken, which the next segment does not follow.
    """

    token_ids: tuple[int, ...]
    is_read: bool = True
    tail: tuple[int, ...] = ()


def n_tokens_of(segments: Sequence[Segment]) -> int:
    """Return the number of tokens to read for these segments, tails included."""
    return sum(len(segment.token_ids) + len(segment.tail) for segment in segments)


def plain_tokens(tokenizer: Tokenizer, text: str, tag: str = "") -> tuple[int, ...]:
    """Tokenise a text as nothing but text: what looks like a special token, or like `tag`, stays letters."""
    if tag and tag in text:  # cut inside every tag, so that no token can span it
        before, _, after = text.partition(tag)
        pieces = (before + tag[0], tag[1:], after)
        return tuple(i for piece in pieces if piece for i in plain_tokens(tokenizer, piece, tag))
    return tuple(tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


def start_tokens(tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the token that texts begin with, none where the tokenizer has none."""
    return () if tokenizer.bos_token_id is None else (tokenizer.bos_token_id,)


def continued_tokens(tokenizer: Tokenizer, before: str, text: str) -> tuple[int, ...]:
    """Tokenise a text as it reads behind another one, where some tokenizers would put a space before it otherwise."""
    whole, known = plain_tokens(tokenizer, before + text), plain_tokens(tokenizer, before)
    return whole[len(known) :] if whole[: len(known)] == known else plain_tokens(tokenizer, text)


def chat_frame(tokenizer: Tokenizer, roles: Sequence[str], *, is_answered: bool = False) -> list[tuple[int, ...]]:
    """Return the chat template's tokens around the texts of a conversation.

    Args:
        tokenizer: has a chat template.
        roles: of the turns.
        is_answered: False ends with the opening of the assistant's turn, True with the end of the last turn.

    Returns:
        What stands before the first text, between the texts, and behind the last one: one more than there are roles.

    Raises:
        TargetError: there is no chat template, or it does not show every text once.
    """
    turns = [{"role": role, "content": _CONTENT} for role in roles]
    try:
        rendered = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=not is_answered))
    except Exception as error:  # a template is a program of the model's author and may raise anything
        raise TargetError(f"chat template: {first_line(error)}; give a reward model of another kind") from None
    pieces = rendered.split(_CONTENT)
    if len(pieces) != len(roles) + 1:
        raise TargetError(
            f"chat template: it shows {len(pieces) - 1} of {len(roles)} texts; give a reward model of another kind"
        )
    return [tuple(tokenizer.encode(piece, add_special_tokens=False)) if piece else () for piece in pieces]
