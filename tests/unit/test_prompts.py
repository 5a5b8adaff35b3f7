"""From problems to prompt tokens, with a toy tokenizer of words."""

from __future__ import annotations

import numpy as np
import pytest

from tests.word_tokenizer import tokenizer_of_words
from tts_orch.errors import ProblemError
from tts_orch.records import IntArray, Problem
from tts_orch.tasks.choice_task import with_choices
from tts_orch.tasks.prompts import render

TOKENIZER = tokenizer_of_words()
QUESTION = Problem(id="sum", prompt="what is two and two ?")
CHAT = Problem(
    id="talk", messages=({"role": "system", "content": "be brief"}, {"role": "user", "content": "what is two ?"})
)


def text_of(token_ids: IntArray) -> str:
    return " ".join(TOKENIZER.convert_ids_to_tokens(token_ids.tolist()))


def test_raw_prompts_get_the_tokenizers_own_special_tokens() -> None:
    token_ids = render(QUESTION, TOKENIZER, "raw")
    assert token_ids.dtype == np.int32
    assert text_of(token_ids) == "<s> what is two and two ?"


@pytest.mark.parametrize("template", ["chat", "auto"])
def test_chat_prompts_get_special_tokens_from_the_template_alone(template: str) -> None:
    token_ids = render(QUESTION, TOKENIZER, template)  # type: ignore[arg-type]
    assert text_of(token_ids) == "<s> user : what is two and two ? </s> assistant :"


def test_messages_are_rendered_in_order() -> None:
    assert text_of(render(CHAT, TOKENIZER)) == "<s> system : be brief </s> <s> user : what is two ? </s> assistant :"


def test_auto_without_a_template_is_raw() -> None:
    assert text_of(render(QUESTION, tokenizer_of_words(None), "auto")) == "<s> what is two and two ?"


@pytest.mark.parametrize(
    ("problem", "template", "has_template", "complaint"),
    [
        (QUESTION, "chat", False, "no chat template"),
        (CHAT, "auto", False, "no chat template"),
        (CHAT, "raw", True, "has `messages` only"),
        (Problem(id="talk", messages=({"role": "narrator", "content": "two"},)), "chat", True, "no narrators"),
    ],
)
def test_what_cannot_be_rendered_is_one_line(
    problem: Problem, template: str, has_template: bool, complaint: str
) -> None:
    tokenizer = TOKENIZER if has_template else tokenizer_of_words(None)
    with pytest.raises(ProblemError, match=complaint) as caught:
        render(problem, tokenizer, template)  # type: ignore[arg-type]
    assert problem.id in str(caught.value)
    assert "\n" not in str(caught.value)


def test_choices_are_appended_as_lettered_lines() -> None:
    problem = Problem(id="c", prompt="what is two and two ?", choices=("four", "five"))
    assert text_of(render(problem, TOKENIZER, "raw")) == "<s> what is two and two ? A . four B . five"
    assert text_of(render(problem, TOKENIZER, "chat")).endswith("two ? A . four B . five </s> assistant :")


def test_choices_that_the_prompt_shows_are_not_repeated() -> None:
    problem = Problem(id="c", prompt="what is two and two ? A . four (B) five", choices=("four", "five"))
    assert render(problem, TOKENIZER, "raw").tolist() == TOKENIZER(problem.prompt)["input_ids"]


def test_choices_whose_words_the_question_has_are_appended_all_the_same() -> None:
    question = "Let l = [1,2,3,4]. What is min(l) in Python3?"
    assert with_choices(question, ("1", "2")) == f"{question}\nA. 1\nB. 2"
    assert with_choices("four or five?", ("four", "five")) == "four or five?\nA. four\nB. five"


def test_a_prompt_without_tokens_is_refused() -> None:
    tokenizer = tokenizer_of_words("{{ '' }}")
    with pytest.raises(ProblemError, match="empty prompt"):
        render(QUESTION, tokenizer, "chat")
