"""`StopScanner` against decoding everything and searching after every token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.toys import VOCABULARY_SIZE, toy_tokenizer
from tts_orch.engine.stop_strings import StopScanner

_PIECES = (b"a", b"b", b"ab", b"\n", b"a\n", b"\nb", b"b\xc3", b"\xc3", b"\xa9", b"\xe2\x82", b"\xac", b"\xe2", b"\x82")
"""Text, parts of an accented letter and of the euro sign, and text that ends inside a character."""


def _decode_bytes(token_ids: Sequence[int]) -> str:
    return b"".join(_PIECES[token] for token in token_ids).decode("utf-8", errors="replace")


def _first_match(decode: Callable[[Sequence[int]], str], output: Sequence[int], stops: Sequence[str]) -> int | None:
    """Return the index of the output token with which a stop string first appears."""
    texts = (decode(output[: n + 1]) for n in range(len(output)))
    return next((n for n, text in enumerate(texts) if any(stop in text for stop in stops)), None)


def _scan(scanner: StopScanner, output: Sequence[int]) -> int | None:
    return next((n for n, token in enumerate(output) if scanner.feed(token)), None)


@settings(max_examples=300, deadline=None)
@given(
    output=st.lists(st.integers(0, len(_PIECES) - 1), max_size=24),
    stops=st.lists(st.text("ab\né€", min_size=1, max_size=4), min_size=1, max_size=3),
)
@example(output=[6, 0], stops=["b"])  # the stop string is complete before the character behind it
@example(output=[0, 7, 8], stops=["aé"])
@example(output=[9, 9, 10], stops=["€"])
def test_scanner_finds_what_a_full_search_finds(output: list[int], stops: list[str]) -> None:
    assert _scan(StopScanner(_decode_bytes, [], stops), output) == _first_match(_decode_bytes, output, stops)


@settings(max_examples=100, deadline=None)
@given(
    prompt=st.lists(st.integers(3, VOCABULARY_SIZE - 1), max_size=6),
    output=st.lists(st.integers(0, VOCABULARY_SIZE - 1), max_size=30),
    stops=st.lists(
        st.sampled_from(["\n\n", ".\n", "the", "e", "é", "€", "#### 1"]), min_size=1, max_size=3, unique=True
    ),
)
def test_scanner_agrees_on_a_real_tokenizer(prompt: list[int], output: list[int], stops: list[str]) -> None:
    tokenizer = toy_tokenizer()

    def decode(token_ids: Sequence[int]) -> str:
        return str(tokenizer.decode(token_ids, skip_special_tokens=True))

    assert _scan(StopScanner(decode, prompt, stops), output) == _first_match(decode, output, stops)


def test_text_of_the_prompt_does_not_count() -> None:
    prompt, output = [0, 3], [1, 0, 1]  # "a\n" and "b", "a", "b"
    assert _scan(StopScanner(_decode_bytes, prompt, ["\nb", "a\n"]), output) is None


def test_a_dropped_leading_space_is_no_text() -> None:
    """Some tokenizers leave out the space before the first decoded word; inside the output it is part of the text."""

    def decode(token_ids: Sequence[int]) -> str:
        return "".join(f" w{token}" for token in token_ids)[1:]

    assert _scan(StopScanner(decode, [7], [" w1 w2"]), [1, 2]) == 1


@pytest.mark.parametrize("n_garbage", [1, 5])
def test_bytes_that_never_become_a_character_do_not_hide_a_stop_string(n_garbage: int) -> None:
    output = [*[7] * n_garbage, 0, 1]
    assert _scan(StopScanner(_decode_bytes, [], ["ab"]), output) == n_garbage + 1
