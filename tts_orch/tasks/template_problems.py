"""Word problems of one, two and three steps of arithmetic on small numbers, made from templates.

Every prompt is a few-shot prompt to be taken as it is, without a chat template: worked examples with a paragraph for each
step, then the question. A small base model solves some of them, so that search has something to find.

The operations and numbers of a problem decide whether it is a training or a test problem, whatever its words: the two parts
share no problem, for any seeds.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, TypeAlias

from tts_orch.records import Problem

__all__ = ["STOP", "Part", "Story", "Sum", "part_of", "template_problems", "worked_examples"]

Part: TypeAlias = Literal["train", "test"]

STOP: Final = "Q:"
"""Stop string of the answers: the model would go on with a question of its own."""

_TEST_SHARE: Final = 4  # one sum in so many is a test sum
_LARGEST: Final = 99
_NAMES: Final = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Ivan", "Julia", "Kate", "Leo")
_THINGS: Final = ("apples", "books", "coins", "stickers", "shells", "pencils", "cards", "buttons", "cookies", "flowers")
_PHRASES: Final = {
    "+": ("finds {n} more", "buys {n} more", "gets {n} more"),
    "-": ("loses {n} of them", "gives {n} of them away", "sells {n} of them"),
    "*": ("has {n} times as many",),
}


class Sum(NamedTuple):
    """What is calculated: from the first number on, one operation with one number after the other.

    Attributes:
        numbers: from 1 to 9; one more than operations.
        operations: `+`, `-` or `*`.
    """

    numbers: tuple[int, ...]
    operations: tuple[str, ...]

    def results(self) -> list[int]:
        """Return the result of every step."""
        results = [self.numbers[0]]
        for operation, number in zip(self.operations, self.numbers[1:], strict=True):
            last = results[-1]
            results.append({"+": last + number, "-": last - number, "*": last * number}[operation])
        return results[1:]


class Story(NamedTuple):
    """A sum in words.

    Attributes:
        name: who counts.
        things: what is counted.
        calculation: the sum.
        phrases: what happens in each step.
    """

    name: str
    things: str
    calculation: Sum
    phrases: tuple[str, ...]

    def question(self) -> str:
        """Return what happens, and what is asked."""
        return f"{self._start()} {' '.join(self._events())} How many {self.things} does {self.name} have now?"

    def solution(self) -> str:
        """Return the solution, a paragraph for each step and one for the answer."""
        numbers, operations = self.calculation
        results = self.calculation.results()
        parts = zip(self._events(), [numbers[0], *results], operations, numbers[1:], results, strict=False)
        steps = [f"{event} {before} {sign} {number} = {after}." for event, before, sign, number, after in parts]
        return "\n\n".join([f"{self._start()} {steps[0]}", *steps[1:], f"The answer is {results[-1]}."])

    def _start(self) -> str:
        return f"{self.name} has {self.calculation.numbers[0]} {self.things}."

    def _events(self) -> list[str]:
        pairs = zip(self.phrases, self.calculation.numbers[1:], strict=True)
        return [f"Then {self.name} {phrase.format(n=number)}." for phrase, number in pairs]


_EXAMPLES: Final = (
    Story("Tom", "marbles", Sum((3, 2), ("+",)), ("finds {n} more",)),
    Story("Mia", "pens", Sum((9, 4), ("-",)), ("loses {n} of them",)),
    Story("Jack", "stamps", Sum((4, 3), ("*",)), ("has {n} times as many",)),
    Story("Tom", "marbles", Sum((6, 3, 2), ("+", "-")), ("finds {n} more", "gives {n} of them away")),
    Story("Mia", "pens", Sum((8, 5, 4), ("-", "*")), ("loses {n} of them", "has {n} times as many")),
    Story("Jack", "stamps", Sum((4, 3, 5), ("*", "+")), ("has {n} times as many", "buys {n} more")),
    Story(
        "Tom", "marbles", Sum((5, 4, 3, 6), ("+", "+", "-")), ("finds {n} more", "buys {n} more", "loses {n} of them")
    ),
    Story(
        "Mia",
        "pens",
        Sum((9, 6, 4, 2), ("-", "*", "+")),
        ("sells {n} of them", "has {n} times as many", "gets {n} more"),
    ),
    Story(
        "Jack",
        "stamps",
        Sum((3, 4, 5, 2), ("*", "-", "+")),
        ("has {n} times as many", "loses {n} of them", "buys {n} more"),
    ),
)


def worked_examples(n_steps: int) -> str:
    """Return the beginning of a prompt: the solutions of problems that take as many steps."""
    examples = [story for story in _EXAMPLES if len(story.phrases) == n_steps]
    return "".join(f"Q: {story.question()}\nA: {story.solution()}\n\n" for story in examples)


def part_of(calculation: Sum) -> Part:
    """Return which part every problem with this calculation belongs to, and every one with the same numbers in another order."""
    place = f"{sorted(calculation.operations)} {sorted(calculation.numbers)}"
    digest = hashlib.blake2b(place.encode(), digest_size=8).digest()
    return "train" if int.from_bytes(digest, "big") % _TEST_SHARE else "test"


def template_problems(part: Part, n: int, seed: int = 0, steps: tuple[int, ...] = (1, 2, 3)) -> list[Problem]:
    """Return n problems with different questions.

    Args:
        part: training or test problems.
        n: how many.
        seed: fixes them; the first problems do not depend on n.
        steps: how many steps they take, in turn.
    """
    source = random.Random(f"{part} {seed}")
    problems: dict[str, Problem] = {}
    while len(problems) < n:
        n_steps = steps[len(problems) % len(steps)]
        calculation = next(one for one in _sums(n_steps, source) if part_of(one) == part)
        question = _story(calculation, source).question()
        identity = f"{part}-{seed}-{len(problems):04}-{n_steps}"
        prompt = f"{worked_examples(n_steps)}Q: {question}\nA:"
        results = tuple(map(str, calculation.results()))
        problem = Problem(identity, prompt, answer=results[-1], domain="math", step_answers=results)
        problems.setdefault(question, problem)
    return list(problems.values())


def _sums(n_steps: int, source: random.Random) -> Iterator[Sum]:
    """Draw sums without end whose results all stay from 1 to 99."""
    while True:
        numbers = tuple(source.randint(1, 9) for _ in range(n_steps + 1))
        drawn = Sum(numbers, tuple(source.choice("+-*") for _ in range(n_steps)))
        is_dull = any(one == "*" and number == 1 for one, number in zip(drawn.operations, numbers[1:], strict=True))
        if not is_dull and all(1 <= result <= _LARGEST for result in drawn.results()):
            yield drawn


def _story(calculation: Sum, source: random.Random) -> Story:
    phrases = tuple(source.choice(_PHRASES[operation]) for operation in calculation.operations)
    return Story(source.choice(_NAMES), source.choice(_THINGS), calculation, phrases)
