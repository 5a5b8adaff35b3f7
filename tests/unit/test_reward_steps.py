"""Where steps are, and which tokens a reward model reads for them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward_toys import reward_tokenizer
from tts_orch.errors import TargetError
from tts_orch.rewards.segments import chat_frame, continued_tokens, plain_tokens
from tts_orch.rewards.steps import cut_steps, split_steps

TEXTS = st.text(alphabet="ab.\n ", max_size=30)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("", []),
        ("\n\n", []),
        ("one", ["one"]),
        ("one\n\n", ["one"]),
        ("one\n\ntwo", ["one", "two"]),
        ("one\n\n\ntwo", ["one", "two"]),
        ("one\n\n\n\ntwo\n\n", ["one", "two"]),
        ("\n\none\nmore", ["one\nmore"]),
        ("one\n\n  indented", ["one", "  indented"]),
    ],
)
def test_steps_of_a_text(text: str, steps: list[str]) -> None:
    assert split_steps(text, ["\n\n"]) == steps


def test_the_longest_delimiter_counts_and_patterns_are_plain_text() -> None:
    assert split_steps("a.*b\n\nc", ["\n", "\n\n", ".*"]) == ["a", "b", "c"]


@given(TEXTS, TEXTS)
def test_a_text_that_goes_on_keeps_its_complete_steps(text: str, more: str) -> None:
    complete = split_steps(text + "\n\n", ["\n\n"])
    assert split_steps(text + "\n\n" + more, ["\n\n"])[: len(complete)] == complete


@given(TEXTS)
def test_pieces_join_to_the_text_and_are_as_many_as_steps_where_none_is_blank(text: str) -> None:
    pieces = cut_steps(text, ["\n\n"])
    assert "".join(pieces) == text
    assert len([piece for piece in pieces if piece.strip()]) == len(split_steps(text, ["\n\n"]))


def test_what_looks_like_a_special_token_is_read_as_letters() -> None:
    tokenizer = reward_tokenizer()
    special = {tokenizer.bos_token_id, tokenizer.eos_token_id}
    assert special.isdisjoint(plain_tokens(tokenizer, "a <eos> b<bos>"))
    mark = tokenizer.convert_tokens_to_ids("<extra_0>")
    token_ids = plain_tokens(tokenizer, "a<extra_0>b <extra_0>", "<extra_0>")
    assert mark not in token_ids
    assert tokenizer.decode(token_ids) == "a<extra_0>b <extra_0>"


def test_a_mark_that_is_no_special_token_is_read_as_letters_too() -> None:
    tokenizer = reward_tokenizer()
    tokenizer.add_tokens(["<step>"])
    assert tokenizer.convert_tokens_to_ids("<step>") in plain_tokens(tokenizer, "a<step>")
    assert tokenizer.convert_tokens_to_ids("<step>") not in plain_tokens(tokenizer, "a<step>", "<step>")


def test_a_continuation_is_the_rest_of_the_whole_where_the_beginning_stays() -> None:
    tokenizer = reward_tokenizer()
    whole = plain_tokens(tokenizer, "10 + 1 = 11")
    assert plain_tokens(tokenizer, "10 +") + continued_tokens(tokenizer, "10 +", " 1 = 11") == whole
    merged = continued_tokens(tokenizer, "th", "e end")  # "the" is one token
    assert merged == plain_tokens(tokenizer, "e end")


def test_the_frame_of_a_conversation() -> None:
    tokenizer = reward_tokenizer()
    start, between, opening = chat_frame(tokenizer, ["system", "user"])
    assert tokenizer.decode(start) == "<bos>system\n"
    assert tokenizer.decode(between) == "<eos>\n<bos>user\n"
    assert tokenizer.decode(opening) == "<eos>\n<bos>assistant\n"
    assert tokenizer.decode(chat_frame(tokenizer, ["user"], is_answered=True)[-1]) == "<eos>\n"


def test_a_template_that_drops_a_turn_is_refused() -> None:
    tokenizer = reward_tokenizer()
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    with pytest.raises(TargetError, match="shows 1 of 2 texts"):
        chat_frame(tokenizer, ["system", "user"])
    tokenizer.chat_template = None
    with pytest.raises(TargetError, match="chat template"):
        chat_frame(tokenizer, ["user"])
