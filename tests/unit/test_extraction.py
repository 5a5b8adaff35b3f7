"""Where answers stand in outputs; one row for each known pitfall."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.tasks.choices import extract_choice
from tts_orch.tasks.extraction import extract_answer, find_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{\frac{1}{2}} it is", r"\frac{1}{2}"),
        (r"\boxed{1}, no, \boxed{2}", "2"),
        (r"\boxed{A} or \boxed{B}", "B"),
        (r"840 \boxed{840} and again \boxed{840}", "840"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\fbox{5}", "5"),
        (r"the answer is 3, that is \boxed{4}. The answer is 3.", "4"),
        (r"Final answer: $\boxed{7}$. I hope it is correct.", "7"),
        (r"\boxed{7} or \boxed{12", "7"),
    ],
)
def test_the_last_closed_box_wins(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize("text", [r"6 * 2, so \boxed{12", r"x = 3, so \boxed{}", "", "   ", "No idea.", "$x$"])
def test_abstentions(text: str) -> None:
    assert extract_answer(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("3 * 4 = 12\n#### 12", "12"),
        ("#### 1,234\n", "1,234"),
        ("#### $18 dollars", "18"),
        ("#### 1\nmore\n#### 2", "2"),
    ],
)
def test_gsm8k_mark(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("3 + 4 = 7. The answer is 7.", "7"),
        ("The answer is 7. The answer is 8 marbles.\n", "8"),
        ("The answer is: **73**", "73"),
        ("**Answer:** 73 apples, out of 90", "73"),
        ("The answer is 12,345.", "12,345"),
        ("The answer is 1/2.", "1/2"),
        ("The answer is -3.5.", "-3.5"),
        ("The answer is 25%.", "25%"),
        ("The answer is $15.", "15"),
        ("The answer is 3 + 4 = 7.", "7"),
        ("The final answer is $(0, 1)$. I hope it is correct.", "(0, 1)"),
        (r"The answer is \(\sqrt{2}\), about 1.41.", r"\sqrt{2}"),
        ("The answer is x^2 + 1.", "x^2 + 1"),
        ("The answer is blue.", "blue"),
        ("Final Answer: the volume of the prism is 120. I hope it is correct.", "120"),
        ("so $x+y = 1000$ therefore answer is $1$", "1"),
        ("答案：每份应该是 4 吨。", "4"),
    ],
)
def test_stated_answers(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("She has 5 and buys 3, so 5+3=8 apples", "8"),
        ("the probability is 1/2", "1/2"),
        ("it leaves 10-3", "3"),
        ("which makes -3.", "-3"),
        ("total: $1,250.50!", "1,250.50"),
        ("结论：Haley总共有99颗弹珠。", "99"),
        (r"Here is the matrix: $ \begin{pmatrix} 1 \\ 2 \end{pmatrix} $", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        ("Bread costs $5 and milk costs $6", "6"),
        (r"Thus \[ x = 9 \]", "x = 9"),
        ("there are 8 such $x$", "8"),
    ],
)
def test_the_last_number_or_formula_is_the_last_resort(text: str, answer: str) -> None:
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "is_fallback"),
    [
        (r"2 and \boxed{3}", False),
        ("2 + 1\n#### 3", False),
        ("The answer is 3.", False),
        ("2 + 1 makes 3", True),
        ("No idea.", False),
    ],
)
def test_the_last_resort_says_so(text: str, is_fallback: bool) -> None:
    found = find_answer(text)
    assert found.is_fallback is is_fallback
    assert found.answer == (None if text == "No idea." else "3")


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("C", "C"),
        ("(B)", "B"),
        ("B。不是 A", "B"),
        ("B. Because A is wrong.", "B"),
        ("réponse est C non A", "C"),
        ("The answer is (D).", "D"),
        ("The correct answer is: **B**", "B"),
        (r"I take A. Answer: D, in short \boxed{\text{C}}", "C"),
        (r"\boxed{\textbf{(E)}\ 12}", "E"),
        ("Let me see.\nA and B are out.\n\nC.", "C"),
        ("So (A) fails and (B) holds", "B"),
        ("A cat sat on the mat.", None),
        ("The answer is Apple.", None),
        ("I do not know", None),
        ("", None),
    ],
)
def test_choices(text: str, letter: str | None) -> None:
    assert extract_choice(text) == letter


@pytest.mark.parametrize(
    "babble", [r"\boxed{", r"\[ ", "$", "the answer is ", "#### ", "(A", " " * 9, "1" * 9, "1,111", "{"]
)
def test_endless_babble_takes_no_time(babble: str) -> None:
    started = time.process_time()
    extract_answer(babble * 10_000)
    extract_choice(babble * 10_000)
    assert time.process_time() - started < 3


@given(st.text(alphabet=r"\boxed{}$#()[]answer is1,.%/- \n", max_size=80))
def test_any_text_gives_a_text_or_nothing(text: str) -> None:
    answer = extract_answer(text)
    assert answer is None or answer.strip() == answer != ""
