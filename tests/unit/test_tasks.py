"""Kinds of tasks: which a problem is, how it is asked, what is an answer, which answers are equal, and what is right."""

from __future__ import annotations

import pytest

from tests.word_tokenizer import tokenizer_of_words
from tts_orch.errors import ConfigError, ProblemError
from tts_orch.records import Problem
from tts_orch.task_config import TaskConfig
from tts_orch.tasks.answers import classes_for, extract_for, grade_for
from tts_orch.tasks.choice_task import ChoiceTask
from tts_orch.tasks.code.task import CodeTask
from tts_orch.tasks.math_task import MathTask
from tts_orch.tasks.prompts import render
from tts_orch.tasks.registry import task_of
from tts_orch.tasks.task import Extraction
from tts_orch.tasks.text_task import TextTask
from tts_orch.tasks.thinking import NO_THINKING, Thinking, text_decoder, thinking_of

TOKENIZER = tokenizer_of_words()
SUM = Problem(id="s", prompt="What is two and two?", answer="4", domain="math")
CHOICE = Problem(id="c", prompt="What is two and two?", answer="B", domain="math", choices=("3", "4"))
DOUBLE = Problem(id="d", prompt="Double a number.", answer="pass", domain="code", tests=["assert double(2) == 4"])
CHAT = Problem(id="t", prompt="What is the capital of France?", answer="Paris.", domain="chat")


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (SUM, MathTask),
        (CHOICE, ChoiceTask),
        (DOUBLE, CodeTask),
        (CHAT, TextTask),
        (Problem(id="c", prompt="?", domain="code"), TextTask),
        (Problem(id="n", prompt="?"), MathTask),
        (Problem(id="s", prompt="?", domain="science"), MathTask),
    ],
)
def test_the_kind_is_told_by_the_problem(problem: Problem, kind: type) -> None:
    assert type(task_of(problem)) is kind


def test_the_run_may_say_otherwise() -> None:
    assert type(task_of(CHOICE, "math")) is MathTask
    assert type(task_of(CHAT, "math")) is MathTask
    with pytest.raises(ProblemError, match="problem 's': task code needs `tests`"):
        task_of(SUM, "code")
    with pytest.raises(ConfigError, match="task"):
        TaskConfig(task="maths")  # type: ignore[arg-type]


def test_answers_are_found_in_the_way_of_the_task() -> None:
    assert extract_for(CHOICE, "The answer is B, that is 4.") == Extraction("B")
    assert extract_for(CHOICE, "The answer is D.") == Extraction()
    assert extract_for(CHOICE, "So (A) fails and (B) holds") == Extraction("B", is_fallback=True)
    assert extract_for(SUM, "2 + 2 = 4") == Extraction("4", is_fallback=True)
    assert extract_for(CHAT, "  Paris, of course.\n") == Extraction("Paris, of course.")
    assert extract_for(CHAT, " \n") == Extraction()
    assert extract_for(DOUBLE, "```python\ndef double(x): return 2 * x\n```").answer == "def double(x): return 2 * x"
    assert extract_for(SUM, "The answer is B, that is 4.", task="choice") == Extraction("B")


def test_equal_answers_are_one_class() -> None:
    assert classes_for(SUM, ["4", r"\frac{8}{2}", None, "5"]) == [0, 0, None, 1]
    assert classes_for(CHOICE, ["B", "A", "B", None]) == [0, 1, 0, None]
    assert classes_for(CHAT, ["Paris", "paris.", " Lyon", None]) == [0, 0, 1, None]
    same = ["def double(x):\n    return 2 * x", 'def double(x):  # twice\n    """Double."""\n    return (2*x)']
    assert classes_for(DOUBLE, [*same, None, "def double(x): return x + x"]) == [0, 0, None, 1]


def test_grades() -> None:
    assert grade_for(SUM, ["4.0", None, "5", "4.0"]) == [True, False, False, True]
    assert grade_for(CHOICE, ["B", "A", None]) == [True, False, False]
    assert grade_for(CHAT, ["paris", "Lyon"]) == [True, False]
    assert grade_for(DOUBLE, ["def double(x): return 2 * x", "def double(x): return x", None]) == [True, False, False]


@pytest.mark.parametrize(
    "problem",
    [
        Problem(id="n", prompt="?"),
        Problem(id="l", prompt="?", domain="chat", answer="a long example of an answer " * 20),
        Problem(id="c", prompt="?", choices=("1", "2")),
    ],
)
def test_without_a_reference_nothing_is_graded(problem: Problem) -> None:
    assert grade_for(problem, ["4"]) is None


def text_of(problem: Problem, template: str, **settings: str) -> str:
    token_ids = render(problem, TOKENIZER, template, TaskConfig(**settings))  # type: ignore[arg-type]
    return " ".join(TOKENIZER.convert_ids_to_tokens(token_ids.tolist()))


def test_instructions_are_appended_when_asked_for() -> None:
    problem = Problem(id="s", prompt="what is two ?")
    plain = "<s> what is two ?"
    assert text_of(problem, "raw") == plain
    assert text_of(problem, "raw", instructions="never") == plain
    asked = text_of(problem, "raw", instructions="always")
    assert asked.startswith(plain)
    assert len(asked) > len(plain)


@pytest.mark.parametrize(
    ("tests", "entry_point", "is_chat", "is_needed"),
    [
        (["assert double(2) == 4"], None, False, True),  # nothing else names the function
        ("def check(f): assert f(2) == 4", "double", False, False),  # a model goes on with the function's beginning
        ("def check(f): assert f(2) == 4", "double", True, True),
        ([{"input": "2", "output": "4"}], None, False, True),
    ],
)
def test_code_is_asked_for_where_the_problem_does_not_say_how(
    tests: object, entry_point: str | None, is_chat: bool, is_needed: bool
) -> None:
    problem = Problem(id="d", prompt="?", tests={"tests": tests, "entry_point": entry_point})
    task = task_of(problem)
    assert task.needs_instruction(problem, is_chat) is is_needed
    assert "Python code block" in task.instruction(problem)


def test_the_instruction_shows_tests_that_name_the_function() -> None:
    assert "assert double(2) == 4" in task_of(DOUBLE).instruction(DOUBLE)


MARKED = Thinking("</think>")
OPENED = Thinking("</think>", is_open=True)


@pytest.mark.parametrize(
    ("thinking", "text", "part"),
    [
        (MARKED, r"<think>\boxed{1}</think>\boxed{2}", r"\boxed{2}"),
        (MARKED, r"<think>\boxed{1}", ""),
        (MARKED, r"\boxed{2}", r"\boxed{2}"),  # it did not think
        (OPENED, r"\boxed{1}</think>\boxed{2}", r"\boxed{2}"),
        (OPENED, r"\boxed{1}", ""),
        (OPENED, "a</think>b</think>c", "c"),
        (NO_THINKING, r"<think>\boxed{1}", r"<think>\boxed{1}"),
    ],
)
def test_the_answer_begins_after_the_thinking(thinking: Thinking, text: str, part: str) -> None:
    assert thinking.answer_part(text) == part


def test_nothing_is_answered_within_the_thinking() -> None:
    assert extract_for(SUM, r"so \boxed{3}, no, wait", thinking=OPENED) == Extraction()
    assert extract_for(CHOICE, "A?</think>The answer is B.", thinking=OPENED) == Extraction("B")
    assert extract_for(CHAT, "hmm</think>Paris", thinking=OPENED) == Extraction("Paris")


def test_the_mark_is_found_in_the_tokenizer() -> None:
    words = "{% for m in messages %}{{ m.content }} {% endfor %}"
    opened = tokenizer_of_words(words + "{% if add_generation_prompt %}assistant <think>{% endif %}{# </think> #}")
    closed = tokenizer_of_words(words + "{% if add_generation_prompt %}assistant <think></think>{% endif %}")
    assert thinking_of(opened) == OPENED
    assert thinking_of(opened, template="raw") == MARKED
    assert thinking_of(closed) == MARKED
    assert thinking_of(TOKENIZER) == NO_THINKING
    assert thinking_of(opened, "") == NO_THINKING
    assert thinking_of(TOKENIZER, "[/T]") == Thinking("[/T]")
    assert opened.decode([3]) == text_decoder(opened, OPENED)([3]) == "user"
    added = tokenizer_of_words(None)
    added.add_tokens(["</think>"])
    assert thinking_of(added) == MARKED


def test_marks_that_are_special_tokens_stay_in_the_text() -> None:
    tokenizer = tokenizer_of_words(None)
    tokenizer.add_special_tokens({"additional_special_tokens": ["[THINK]", "[/THINK]"]})
    thinking = thinking_of(tokenizer)
    assert thinking == Thinking("[/THINK]")
    token_ids = tokenizer("[THINK] two [/THINK] four </s>", add_special_tokens=False)["input_ids"]
    assert "THINK" not in tokenizer.decode(token_ids, skip_special_tokens=True)
    decode = text_decoder(tokenizer, thinking)
    text = decode(token_ids)
    assert text.split() == ["[THINK]two[/THINK]four"]
    assert thinking.answer_part(text) == "four"
    assert thinking.answer_part(decode(token_ids[:2])) == ""
