"""Deltas added up: as plain dictionaries do it, and in one form."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce

Plain = list[tuple[int, int, int, list[tuple[int, int]]]]
"""Key, order, count, and pairs of ids and sums."""

CONTEXT = st.tuples(
    st.sampled_from([1, 2, 3, 2**63, 2**64 - 1]),
    st.integers(1, 4),
    st.integers(1, 1 << 40),
    st.lists(st.tuples(st.sampled_from([0, 1, 5, 7, 151_935, 2**31 - 1]), st.integers(1, 65535 << 40)), max_size=9),
)


def delta_of(plain: Plain) -> ContextDelta:
    pairs = [pair for *_, pairs in plain for pair in pairs]
    return ContextDelta(
        key=np.array([key for key, *_ in plain], np.uint64),
        order=np.array([order for _, order, *_ in plain], np.uint8),
        count=np.array([count for _, _, count, _ in plain], np.int64),
        start=np.cumsum([0, *(len(pairs) for *_, pairs in plain)], dtype=np.int64),
        ids=np.array([token for token, _ in pairs], np.int32),
        sums=np.array([total for _, total in pairs], np.int64),
    )


def added_up(plains: Sequence[Plain]) -> Plain:
    found: dict[int, tuple[int, int, dict[int, int]]] = {}
    for key, order, count, pairs in (context for plain in plains for context in plain):
        first_order, known_count, sums = found.get(key, (order, 0, {}))
        for token, total in pairs:
            sums[token] = sums.get(token, 0) + total
        found[key] = first_order, known_count + count, sums
    return [(key, order, count, sorted(sums.items())) for key, (order, count, sums) in sorted(found.items())]


def assert_same(one: ContextDelta, other: ContextDelta) -> None:
    for name in one.__slots__:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)


@given(st.lists(st.lists(CONTEXT, max_size=8), max_size=4))
@settings(max_examples=100, deadline=None)
def test_deltas_are_added_up_as_dictionaries_do_it(plains: list[Plain]) -> None:
    """Any order of keys and ids, repeated ones and contexts without ids among them."""
    assert_same(coalesce([delta_of(plain) for plain in plains]), delta_of(added_up(plains)))


@given(st.lists(st.lists(CONTEXT, max_size=8), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_arguments_stay_what_they_were(plains: list[Plain]) -> None:
    deltas = [delta_of(plain) for plain in plains]
    once = coalesce(deltas)
    for delta, plain in zip(deltas, plains, strict=True):
        assert_same(delta, delta_of(plain))
    assert_same(coalesce([once]), once)


@given(st.lists(CONTEXT, max_size=8), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_cut_keeps_the_largest_sums(plain: Plain, n_ids: int) -> None:
    whole = added_up([plain])
    expected = [
        (key, order, count, sorted(sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:n_ids]))
        for key, order, count, pairs in whole
    ]
    assert_same(delta_of(whole).cut(n_ids), delta_of(expected))
