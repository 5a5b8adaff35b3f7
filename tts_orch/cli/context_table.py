"""A table of what draft statistics say: the contexts observed most, and what follows them, as text where there is a tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.markup import escape
from rich.table import Table

from tts_orch.errors import TargetError, first_line
from tts_orch.policies.drafting.context_delta import ORDERS, PROBABILITY_ONE, ContextDelta
from tts_orch.policies.drafting.context_tokens import ContextTokens

__all__ = ["Texts", "context_table", "texts_of"]

_N_FOLLOWING: Final = 3


@dataclass(frozen=True, slots=True)
class Texts:
    """What token ids stand for.

    Attributes:
        tokenizer_id: digest of the tokenizer; scopes of another one have other ids.
        decode: ids to text.
    """

    tokenizer_id: str
    decode: Callable[[Sequence[int]], str]


def texts_of(target: str) -> Texts:
    """Load the tokenizer of a target model.

    Raises:
        TargetError: it cannot be found or read.
    """
    from transformers import AutoTokenizer  # slow to load

    from tts_orch.engine.model_files import locate, tokenizer_id

    place = locate(target)
    try:
        tokenizer = AutoTokenizer.from_pretrained(place)
    except Exception as error:  # each format has its own ways to fail
        raise TargetError(f"{target}: cannot load its tokenizer ({first_line(error)})") from None
    return Texts(tokenizer_id(tokenizer), lambda ids: str(tokenizer.decode(list(ids))))


def context_table(scope: str, contexts: ContextDelta, n_top: int, texts: Texts | None) -> Table:
    """Return the most observed contexts of each length, with the most probable tokens after them."""
    is_known = texts is not None and f"/{texts.tokenizer_id}/" in scope
    decode = texts.decode if texts is not None and is_known else None
    table = Table("times", "context", "most probable tokens after it", box=None, pad_edge=False, title_justify="left")
    table.title = escape(scope)
    tokens = ContextTokens(contexts)
    for context in _most_observed(contexts, n_top):
        table.add_row(*map(escape, _row(contexts.part(context, context + 1), tokens, decode)))
    return table


def _most_observed(contexts: ContextDelta, n_top: int) -> Iterator[int]:
    ranked = np.argsort(-contexts.count, kind="stable")
    for order in range(1, ORDERS + 1):
        yield from ranked[contexts.order[ranked] == order][:n_top].tolist()


def _row(context: ContextDelta, tokens: ContextTokens, decode: Callable[[Sequence[int]], str] | None) -> Iterator[str]:
    count = int(context.count[0])
    found = tokens.find(int(context.key[0]), int(context.order[0]))
    best = np.argsort(-context.sums, kind="stable")[:_N_FOLLOWING]
    shares = (context.sums[best] / (count * PROBABILITY_ONE)).tolist()
    yield f"{count:,}"
    yield "?" if found is None else _text(found, decode)
    yield ", ".join(f"{_text([i], decode)} {p:.2f}" for i, p in zip(context.ids[best].tolist(), shares, strict=True))


def _text(ids: Sequence[int], decode: Callable[[Sequence[int]], str] | None) -> str:
    return " ".join(map(str, ids)) if decode is None else repr(decode(ids))
