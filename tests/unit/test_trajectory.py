"""Where a trajectory ends: the first token at which a rule holds, however many tokens a step brings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.engine.trajectory import Trajectory
from tts_orch.records import DecodeRequest, FinishReason, SamplingParams

_EOS, _STOP_ID = 0, 1
_PIECES = ("", "", "a", "b", "ab", "c")
_PROMPT = (2, 5)


def _decode(token_ids: Sequence[int]) -> str:
    return "".join(_PIECES[token] for token in token_ids)


def _trajectory(
    output: Sequence[int] = (), *, max_new_tokens: int = 8, stops: Sequence[str] = ("bc",), max_context: int = 64
) -> Trajectory:
    law = SamplingParams(max_new_tokens=max_new_tokens, stop_ids=(_STOP_ID,), stop_strings=tuple(stops))
    request = DecodeRequest("t", np.array([*_PROMPT, *output], np.int32), len(_PROMPT), seed=0, law=law)
    return Trajectory(
        request, 0, stop_ids=(_EOS, _STOP_ID), vocab_size=len(_PIECES), max_context=max_context, decode=_decode
    )


def _commit(trajectory: Trajectory, tokens: Sequence[int]) -> tuple[int, FinishReason | None]:
    return trajectory.commit(tokens, [1.0] * len(tokens))


def _naive_end(tokens: Sequence[int], limit: int, stops: Sequence[str]) -> tuple[int, FinishReason | None]:
    for n, token in enumerate(tokens, start=1):
        if token in (_EOS, _STOP_ID):
            return n, FinishReason.EOS
        if any(stop in _decode(tokens[:n]) for stop in stops):
            return n, FinishReason.STOP_STRING
        if n == limit:
            return n, FinishReason.LENGTH
    return len(tokens), None


@settings(max_examples=200, deadline=None)
@given(
    tokens=st.lists(st.integers(0, len(_PIECES) - 1), min_size=1, max_size=12),
    n_resumed=st.integers(0, 6),
    block=st.integers(1, 5),
    limit=st.integers(1, 12),
    stops=st.lists(st.text("abc", min_size=1, max_size=3), max_size=2),
)
def test_end_is_the_first_rule_that_holds(
    tokens: list[int], n_resumed: int, block: int, limit: int, stops: list[str]
) -> None:
    end, reason = _naive_end(tokens, limit, stops)
    received = tokens[: min(n_resumed, end - 1)]
    trajectory = _trajectory(received, max_new_tokens=limit, stops=stops)
    found = None
    for first in range(len(received), len(tokens), block):
        if found is None:
            n, found = _commit(trajectory, tokens[first : first + block])
            assert n <= block
    assert found == reason
    assert trajectory.token_ids.tolist() == [*_PROMPT, *tokens[:end]]
    assert trajectory.root == tokens[end - 1]


@pytest.mark.parametrize(
    ("tokens", "limit", "reason"),
    [
        ([3, _EOS], 2, FinishReason.EOS),
        ([3, _STOP_ID], 2, FinishReason.EOS),
        ([3, 5], 2, FinishReason.STOP_STRING),
        ([3, 4], 2, FinishReason.LENGTH),
    ],
)
def test_rules_that_hold_at_one_token_have_an_order(tokens: list[int], limit: int, reason: FinishReason) -> None:
    assert _commit(_trajectory(max_new_tokens=limit), tokens) == (2, reason)


def test_context_is_a_length_limit() -> None:
    assert _commit(_trajectory(max_context=4), [2, 2, 2]) == (2, FinishReason.LENGTH)


def test_no_tokens_change_nothing() -> None:
    trajectory = _trajectory()
    assert _commit(trajectory, []) == (0, None)
    assert trajectory.length == len(_PROMPT)


def test_everything_before_the_root_is_prefilled() -> None:
    trajectory = _trajectory([3])
    assert trajectory.is_prefilling
    trajectory.computed = 2
    assert not trajectory.is_prefilling


def test_a_stop_string_may_begin_before_a_resume() -> None:
    a_b, c = 4, 5  # "ab", "c": the stop string "bc" begins in one and ends in the other
    assert _commit(_trajectory([a_b]), [c, 2]) == (1, FinishReason.STOP_STRING)
