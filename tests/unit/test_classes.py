"""Partitions of answers: abstentions, closure, independence of order."""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from tts_orch.tasks.classes import answer_classes


def never(_a: str, _b: str) -> bool:
    raise AssertionError("numbers and equal texts need no judge")


def partition(answers: Sequence[Hashable], classes: Sequence[int | None]) -> set[frozenset[Hashable]]:
    numbers = {number for number in classes if number is not None}
    return {frozenset(a for a, c in zip(answers, classes, strict=True) if c == number) for number in numbers}


def test_numbers_in_order_of_first_appearance() -> None:
    assert answer_classes(["8", None, "7", "8.0", "7", r"\frac{16}{2}", None]) == [0, None, 1, 0, 1, 0, None]


def test_abstentions_are_no_class() -> None:
    assert answer_classes([None, None]) == [None, None]
    assert answer_classes(["", "$ $", "."], never) == [None, None, None]
    assert answer_classes([], never) == []


def test_equal_forms_never_reach_the_judge() -> None:
    assert answer_classes(["1/2", "0.5", r"\tfrac{1}{2}"], never) == [0, 0, 0]


def test_expressions_of_one_meaning_are_one_class() -> None:
    assert answer_classes(["x+1", "2", "1 + x", "x + 2"]) == [0, 1, 0, 2]


def test_one_direction_is_not_enough() -> None:
    assert answer_classes(["a", "b"], lambda a, b: a < b) == [0, 1]


def test_classes_are_closed_under_equivalence() -> None:
    near = {frozenset("ab"), frozenset("bc")}
    assert answer_classes(["a", "d", "c", "b"], lambda a, b: frozenset((a, b)) in near) == [0, 1, 0, 0]


@given(
    st.lists(st.sampled_from(["a", "b", "c", "d", "e", "f", "1", "1.0", "2", None]), max_size=10),
    st.sets(st.tuples(st.sampled_from("abcdef12"), st.sampled_from("abcdef12"))),
    st.randoms(),
)
def test_a_permutation_gives_the_same_partition(
    answers: list[str | None], related: set[tuple[str, str]], source: random.Random
) -> None:
    def equal(a: str, b: str) -> bool:
        return (a[0], b[0]) in related

    shuffled = source.sample(answers, len(answers))
    assert partition(answers, answer_classes(answers, equal)) == partition(shuffled, answer_classes(shuffled, equal))
