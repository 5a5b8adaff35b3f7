"""Keys of contexts turn into their tokens again."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.context_delta import ContextDelta
from tts_orch.policies.drafting.context_tokens import ContextTokens
from tts_orch.policies.drafting.ngram_kernels import context_key


def keys_of(text: list[int]) -> list[int]:
    """Keys of the last 1, 2, ... tokens."""
    keys = [np.uint64(0)]
    for order, token in enumerate(reversed(text), start=1):
        keys.append(np.uint64(context_key(keys[-1], token, order)))
    return [int(key) for key in keys[1:]]


def contexts_of(texts: list[list[int]]) -> ContextDelta:
    """All contexts at the ends of texts."""
    pairs = sorted({(key, order) for text in texts for order, key in enumerate(keys_of(text), start=1)})
    n = len(pairs)
    return ContextDelta(
        key=np.array([key for key, _ in pairs], np.uint64),
        order=np.array([order for _, order in pairs], np.uint8),
        count=np.ones(n, np.int64),
        start=np.zeros(n + 1, np.int64),
        ids=np.zeros(0, np.int32),
        sums=np.zeros(0, np.int64),
    )


@given(texts=st.lists(st.lists(st.integers(0, 151_935), min_size=1, max_size=4), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_every_context_is_found_again(texts: list[list[int]]) -> None:
    tokens = ContextTokens(contexts_of(texts), 151_936)
    for text in texts:
        assert tokens.find(keys_of(text)[-1], len(text)) == tuple(text)


def test_context_whose_shorter_one_was_forgotten_stays_unknown() -> None:
    tokens = ContextTokens(contexts_of([[5]]))
    assert tokens.find(keys_of([7, 6])[-1], 2) is None
    assert tokens.find(keys_of([7, 5])[-1], 2) == (7, 5)


def test_token_outside_the_vocabulary_is_no_token() -> None:
    assert ContextTokens(contexts_of([[500]]), vocabulary_size=100).find(keys_of([500])[0], 1) is None
