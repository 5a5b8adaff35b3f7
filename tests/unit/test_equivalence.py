"""Equal and unequal answers, with and without the process that judges expressions."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.tasks import equivalence
from tts_orch.tasks.canonical import canonical_key
from tts_orch.tasks.equivalence import answers_equal
from tts_orch.tasks.process_pool import ProcessPool


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("5", "5.0"),
        ("1,000.50", "1000.5"),
        (r"10{,}000", "10000"),
        (r"12,\!000", "12000"),
        ("$18.90", r"\$18.90"),
        ("0.5", "1/2"),
        (r"\dfrac{1}{2}", r"$\frac{1}{2}$"),
        (r"-\frac{6}{4}", "-1.5"),
        ("7.", " 7 "),
        (r"\boxed{\text{Evelyn}}", "Evelyn"),
        (r"\left( 3, \frac{1}{2} \right)", r"( 3, \tfrac{1}{2} )"),
        ("E", r"\mathrm{E}"),
    ],
)
def test_cheap_rules_find_equal_answers_without_a_process(monkeypatch: pytest.MonkeyPatch, a: str, b: str) -> None:
    monkeypatch.setattr(equivalence, "_pool", None)
    assert answers_equal(a, b)
    assert answers_equal(b, a)


@pytest.mark.parametrize(
    ("a", "b"), [("5", "6"), ("5.001", "5"), ("1/2", "1/4"), ("-2", "2"), ("", ""), ("", "1"), ("840,840", "840")]
)
def test_cheap_rules_tell_numbers_apart_without_a_process(monkeypatch: pytest.MonkeyPatch, a: str, b: str) -> None:
    monkeypatch.setattr(equivalence, "_pool", None)
    assert not answers_equal(a, b)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("y + x", "x+y", True),
        ("(r+5)^2", "(r+5)(r+5)", True),
        (r"\frac{\sqrt{3}}{3}", r"1/\sqrt{3}", True),
        (r"90^\circ", "90", True),
        (r"\{2, 1\}", r"\{1, 2\}", True),
        (r"1-\sqrt{2}, 1+\sqrt{2}", r"1 \pm \sqrt{2}", True),
        ("0.333333", "1/3", True),
        ("(1, 2)", "(2, 1)", False),
        ("[0, 1]", "(0, 1)", False),
        (r"\frac{1}{3}", r"\frac{1}{4}", False),
        ("a + b", "+b", False),
        ("x^2", "x^3", False),
        ("Evelyn", "Carla", False),
        (r"3", r"1 \pm 2", False),
    ],
)
def test_expressions(a: str, b: str, expected: bool) -> None:
    assert answers_equal(a, b) is expected


def test_from_threads_and_from_an_event_loop() -> None:
    pairs = [(f"x + {i}", f"{i} + x") for i in range(8)]
    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda pair: answers_equal(*pair), pairs))

    async def compare() -> bool:
        return await asyncio.to_thread(answers_equal, "a b", "b a")

    assert asyncio.run(compare())


def test_what_cannot_be_decided_in_time_counts_as_different(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = ProcessPool(equivalence.verify_in_worker, workers=1, time_limit_s=2.0)
    monkeypatch.setattr(equivalence, "_pool", lambda: pool)
    assert not answers_equal("9^{9^{9^{9}}}", "1 + x")
    assert answers_equal("1 + y", "y + 1")
    pool.close()


def test_overlong_answers_are_only_compared_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "_pool", None)
    assert answers_equal("x+" * 2000, "x+" * 2000)
    assert not answers_equal("x+" * 2000, "x")


@given(st.fractions(max_denominator=1000))
def test_a_number_has_one_key_in_all_its_spellings(number: object) -> None:
    numerator, denominator = number.numerator, number.denominator  # type: ignore[attr-defined]
    sign, size = ("-" if numerator < 0 else ""), abs(numerator)
    spellings = [f"{3 * numerator}/{3 * denominator}", rf"${sign}\frac{{{size:,}}}{{{denominator}}}$"]
    assert {canonical_key(spelling) for spelling in spellings} == {str(number)}


@given(st.text(alphabet=r"\frac{}$(),.-+/0123x ~", max_size=30))
def test_any_text_has_a_key(text: str) -> None:
    assert isinstance(canonical_key(text), str)
