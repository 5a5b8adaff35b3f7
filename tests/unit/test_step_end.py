"""Where a step ends, against a search of the whole step after every token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tts_orch.engine.step_end import StepEnd
from tts_orch.policies.stopping.confidence import group_confidences
from tts_orch.records import ConfidenceCut, FinishReason, StepRule

_PIECES = (b"a", b"b", b"ab", b"\n", b"a\n", b"\nb", b"b\xc3", b"\xc3", b"\xa9", b"\n\xe2")
"""Text, an accented letter in two halves, and text that ends inside a character."""


def _decode(token_ids: Sequence[int]) -> str:
    return b"".join(_PIECES[token] for token in token_ids).decode("utf-8", errors="replace")


def _ends_of_matches(token_ids: Sequence[int], delimiter: str) -> set[int]:
    text = _decode(token_ids)
    return {i + len(delimiter) for i in range(len(text)) if text.startswith(delimiter, i)}


def _end(rule: StepRule, tokens: Sequence[int], before: Sequence[int] = ()) -> tuple[int, FinishReason | None]:
    step_end = StepEnd(rule, before, _decode)
    for n, token in enumerate(tokens, start=1):
        reason = step_end.feed(token, 1.0)
        if reason is not None:
            return n, reason
    return len(tokens), None


def _naive_end(rule: StepRule, tokens: Sequence[int]) -> tuple[int, FinishReason | None]:
    for n in range(1, len(tokens) + 1):
        new = [_ends_of_matches(tokens[:n], d) - _ends_of_matches(tokens[: n - 1], d) for d in rule.delimiters]
        if n >= rule.min_tokens and any(new):
            return n, FinishReason.STEP
        if n == rule.max_tokens:
            return n, FinishReason.STEP_LENGTH
    return len(tokens), None


@settings(max_examples=300, deadline=None)
@given(
    tokens=st.lists(st.integers(0, len(_PIECES) - 1), max_size=24),
    delimiters=st.lists(st.text("ab\né", min_size=1, max_size=3), max_size=3),
    min_tokens=st.integers(1, 6),
    max_tokens=st.integers(1, 12),
)
@example(tokens=[3, 3, 3], delimiters=["\n\n"], min_tokens=3, max_tokens=9)  # they overlap
@example(tokens=[6, 8, 0], delimiters=["b", "xyz"], min_tokens=2, max_tokens=9)  # the first is too early, and stays so
def test_a_step_ends_where_a_search_of_its_text_says(
    tokens: list[int], delimiters: list[str], min_tokens: int, max_tokens: int
) -> None:
    rule = StepRule(tuple(delimiters), min_tokens, max_tokens)
    assert _end(rule, tokens) == _naive_end(rule, tokens)


@pytest.mark.parametrize(("before", "n"), [([0], 2), ([3], 2), ([3, 3], 2), ([0, 3], 2)])
def test_a_delimiter_counts_only_within_the_step(before: list[int], n: int) -> None:
    newline = 3
    assert _end(StepRule(), [newline, newline], before) == (n, FinishReason.STEP)


def test_without_delimiters_or_a_tokenizer_only_the_length_counts() -> None:
    assert _end(StepRule((), max_tokens=3), [3] * 5) == (3, FinishReason.STEP_LENGTH)
    step_end = StepEnd(StepRule(max_tokens=2), [], None)
    assert [step_end.feed(3, 1.0), step_end.feed(3, 1.0)] == [None, FinishReason.STEP_LENGTH]


@given(
    confidences=st.lists(st.integers(0, 40).map(lambda n: n / 8), min_size=1, max_size=30),
    window=st.integers(1, 8),
    least=st.integers(0, 40).map(lambda n: n / 8),
)
def test_confidence_is_lost_when_a_whole_window_has_too_little(
    confidences: list[float], window: int, least: float
) -> None:
    step_end = StepEnd(StepRule((), confidence=ConfidenceCut(window, least)), [], None)
    found = next((n for n, value in enumerate(confidences, 1) if step_end.feed(0, value) is not None), None)
    lows = (n for n in range(window, len(confidences) + 1) if np.mean(confidences[n - window : n]) < least - 1e-12)
    assert found == next(lows, None)


@given(st.lists(st.floats(3, 40), min_size=1, max_size=40), st.integers(1, 8))
def test_rounding_cuts_nobody(confidences: list[float], window: int) -> None:
    least = float(group_confidences(confidences, window).min())
    step_end = StepEnd(StepRule((), confidence=ConfidenceCut(window, least)), [], None)
    assert {step_end.feed(0, value) for value in confidences} == {None}, "as confident as it must be, and cut"


def test_at_one_token_lost_confidence_comes_before_a_delimiter_and_that_before_the_length() -> None:
    def reason(rule: StepRule) -> FinishReason | None:
        return StepEnd(rule, [], _decode).feed(3, 0.5)

    assert reason(StepRule(("\n",), max_tokens=1, confidence=ConfidenceCut(1, 0.6))) is FinishReason.LOW_CONFIDENCE
    assert reason(StepRule(("\n",), max_tokens=1, confidence=ConfidenceCut(1, 0.5))) is FinishReason.STEP
    assert reason(StepRule(("x",), max_tokens=1)) is FinishReason.STEP_LENGTH
