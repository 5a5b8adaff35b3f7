"""Template problems: right answers, and two parts that share nothing."""

from __future__ import annotations

import re
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.records import Problem
from tts_orch.rewards.steps import split_steps
from tts_orch.tasks.grading import grade
from tts_orch.tasks.template_problems import STOP, Part, Sum, part_of, template_problems, worked_examples


@cache
def some(part: Part, seed: int, n: int = 60) -> list[Problem]:
    return template_problems(part, n, seed)


def question_of(problem: Problem) -> str:
    return str(problem.prompt).rpartition(STOP)[2]


def numbers_of(question: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", question)))


def read(question: str) -> Sum:
    """Read a question as a person would, independently of how it was made."""
    (start,) = re.findall(r"^ \w+ has (\d+) \w+\.", question)
    numbers, operations = [int(start)], []
    for sentence in re.findall(r"Then (.*?)\.", question):
        numbers += map(int, re.findall(r"\d+", sentence))
        is_loss = re.search(r"loses|gives|sells", sentence)
        operations.append("*" if "times as many" in sentence else "-" if is_loss else "+")
    return Sum(tuple(numbers), tuple(operations))


def solve(question: str) -> int:
    return read(question).results()[-1]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30))
def test_training_and_test_problems_share_no_question_and_no_numbers(first: int, second: int) -> None:
    train, test = some("train", first), some("test", second)
    assert {question_of(p) for p in train}.isdisjoint(question_of(p) for p in test)
    sums = [
        {(tuple(sorted(one.numbers)), tuple(sorted(one.operations))) for one in map(read, map(question_of, problems))}
        for problems in (train, test)
    ]
    assert sums[0].isdisjoint(sums[1])


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.data())
def test_the_part_does_not_depend_on_the_order_of_numbers(numbers: list[int], data: st.DataObject) -> None:
    operations = tuple(data.draw(st.sampled_from("+-*")) for _ in numbers[1:])
    shuffled = data.draw(st.permutations(numbers))
    assert part_of(Sum(tuple(numbers), operations)) == part_of(Sum(tuple(shuffled), operations[::-1]))


@pytest.mark.parametrize("part", ["train", "test"])
def test_answers_are_right_and_ids_unique(part: Part) -> None:
    problems = template_problems(part, 300, seed=1)
    assert len({p.id for p in problems}) == len({p.prompt for p in problems}) == 300
    assert all(int(str(p.answer)) == solve(question_of(p)) for p in problems)
    assert all(1 <= int(str(p.answer)) <= 99 for p in problems)
    assert all(1 <= number <= 9 for p in problems for number in numbers_of(question_of(p)))


def test_every_number_of_steps_takes_its_turn() -> None:
    assert [len(numbers_of(question_of(p))) - 1 for p in template_problems("train", 6)] == [1, 2, 3, 1, 2, 3]
    assert {len(numbers_of(question_of(p))) for p in template_problems("test", 5, steps=(2,))} == {3}


def test_more_problems_only_add() -> None:
    assert template_problems("test", 20, seed=3) == template_problems("test", 40, seed=3)[:20]
    assert template_problems("test", 20, seed=3) != template_problems("test", 20, seed=4)


def test_a_quarter_of_the_sums_is_for_tests() -> None:
    sums = [Sum((a, b), (operation,)) for a in range(1, 10) for b in range(1, 10) for operation in "+-*"]
    share = sum(part_of(one) == "test" for one in sums) / len(sums)
    assert 0.15 < share < 0.35  # 135 unordered pairs, each drawn with 1/4: five standard deviations


@pytest.mark.parametrize("n_steps", [1, 2, 3])
def test_worked_examples_are_solved_a_step_a_paragraph(n_steps: int) -> None:
    examples = [one for one in worked_examples(n_steps).split(STOP) if one.strip()]
    assert len(examples) == 3
    for example in examples:
        question, solution = example.split("\nA:")
        *steps, last = split_steps(solution, ["\n\n"])
        assert len(steps) == n_steps
        for step, result in zip(steps, read(question).results(), strict=True):
            a, operation, b, c = re.search(r"(\d+) ([-+*]) (\d+) = (\d+)\.$", step).groups()  # type: ignore[union-attr]
            assert Sum((int(a), int(b)), (operation,)).results() == [int(c)] == [result]
        assert grade(last, str(solve(question)))


def test_the_prompt_ends_with_its_question_behind_examples_of_as_many_steps() -> None:
    for problem in template_problems("train", 6):
        n_steps = len(read(question_of(problem)).operations)
        assert str(problem.prompt).startswith(worked_examples(n_steps))
        assert str(problem.prompt).endswith("have now?\nA:")
