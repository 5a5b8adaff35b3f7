"""Write `word_problems.jsonl`: one-step word problems that a very small model sometimes solves.

Every prompt is a complete few-shot prompt: three worked examples and then the question. Stop strings `Q:` and a blank line end an
answer. Run without arguments to write the file beside this script again; the seed is fixed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SEED = 2024
N_PROBLEMS = 60

WORKED_EXAMPLES = """\
Q: Tom has 3 marbles. He finds 2 more marbles. How many marbles does Tom have now?
A: Tom starts with 3 marbles and finds 2 more. 3 + 2 = 5. The answer is 5.

Q: There are 9 birds in a tree. 4 birds fly away. How many birds are left?
A: There are 9 birds and 4 fly away. 9 - 4 = 5. The answer is 5.

Q: A box holds 4 pens. How many pens are in 3 boxes?
A: Each box holds 4 pens and there are 3 boxes. 3 * 4 = 12. The answer is 12.

"""

NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo")
THINGS = ("apples", "books", "coins", "stickers", "shells", "pencils", "cards", "buttons")


class Template(NamedTuple):
    """A question and how its answer follows from two numbers."""

    text: str
    operation: str


TEMPLATES = (
    Template(
        "{name} has {a} {thing}. A friend gives {name} {b} more {thing}. How many {thing} does {name} have now?", "+"
    ),
    Template("{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have in total?", "+"),
    Template(
        "There are {a} {thing} on the table and {b} {thing} on the floor. How many {thing} are there in all?", "+"
    ),
    Template("{name} has {a} {thing}. {name} loses {b} of them. How many {thing} are left?", "-"),
    Template("{name} had {a} {thing} and gave {b} of them to a friend. How many {thing} does {name} still have?", "-"),
    Template(
        "There are {a} {thing} in a bag. {name} takes out {b} of them. How many {thing} are still in the bag?", "-"
    ),
    Template("A bag holds {a} {thing}. How many {thing} are in {b} bags?", "*"),
    Template("{name} buys {b} packs of {thing}. Each pack has {a} {thing}. How many {thing} does {name} buy?", "*"),
    Template("{name} puts {a} {thing} on each of {b} shelves. How many {thing} are on the shelves?", "*"),
)


def solve(operation: str, a: int, b: int) -> int:
    """Return the result of the one step."""
    return {"+": a + b, "-": a - b, "*": a * b}[operation]


def questions(random_source: random.Random) -> Iterator[tuple[str, int]]:
    """Yield (question, answer) without end, templates in turn."""
    while True:
        for template in TEMPLATES:
            a, b = random_source.randint(2, 9), random_source.randint(2, 9)
            if template.operation == "-":
                a, b = max(a, b) + (a == b), min(a, b)
            name, thing = random_source.choice(NAMES), random_source.choice(THINGS)
            yield template.text.format(a=a, b=b, name=name, thing=thing), solve(template.operation, a, b)


def main() -> None:
    """Write the file."""
    drawn: dict[str, int] = {}
    source = questions(random.Random(SEED))
    while len(drawn) < N_PROBLEMS:
        question, answer = next(source)
        drawn.setdefault(question, answer)
    with Path(__file__).with_name("word_problems.jsonl").open("w", encoding="utf-8") as file:
        for number, (question, answer) in enumerate(drawn.items()):
            prompt = f"{WORKED_EXAMPLES}Q: {question}\nA:"
            file.write(
                json.dumps({"id": f"word-{number:02d}", "prompt": prompt, "answer": str(answer), "domain": "math"})
                + "\n"
            )


if __name__ == "__main__":
    main()
