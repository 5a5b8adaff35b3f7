"""Read problem files: JSON lines, a problem a line, plain or gzip."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tts_orch.errors import ProblemError
from tts_orch.records import Problem
from tts_orch.tasks.code.problem_tests import code_tests
from tts_orch.tasks.object_lines import read_objects

__all__ = ["messages_of", "read_problems"]


def read_problems(path: Path) -> list[Problem]:
    """Read a problem file.

    A line has `id` and `prompt` or `messages`, and may have `answer`, `step_answers`, `domain`, `choices` and `tests`, these
    with `entry_point` and `test_setup`; other fields are ignored and blank lines skipped. Where a line has both, `prompt` is what
    goes to the model, and of a conversation (`turns`) only that. Outputs that wait for a verdict are no problems, though a
    file of them may look like it.

    Raises:
        ProblemError: the file cannot be read or has no problem, or a line is malformed: `file:line: what; what to do`.
    """
    ids: set[str] = set()

    def parse(fields: Mapping[str, Any]) -> Problem:
        problem = _problem(fields)
        if problem.id in ids:
            raise ValueError(f"the id {problem.id!r} was used before; give every problem an id of its own")
        ids.add(problem.id)
        return problem

    problems = read_objects(path, parse)
    if not problems:
        raise ProblemError(f"{path}: no problem in the file; give a JSON object with `id` and `prompt` on every line")
    return problems


def _problem(fields: Mapping[str, Any]) -> Problem:
    """Make a problem of a line; an error says what is wrong and what to do."""
    if fields.get("id") in (None, ""):
        raise ValueError("no `id`; give every problem an id of its own")
    prompt = _text(fields, "prompt")
    messages = tuple(messages_of(fields)) if prompt is None else None
    problem = Problem(
        id=str(_text(fields, "id", numbers=True)),
        prompt=prompt,
        messages=messages,
        answer=_text(fields, "answer", numbers=True),
        domain=_text(fields, "domain"),
        choices=_choices(fields.get("choices")),
        tests=_tests(fields),
        step_answers=_step_answers(fields.get("step_answers")),
    )
    if problem.tests is not None:
        code_tests(problem)
    return problem


def _text(fields: Mapping[str, Any], name: str, *, numbers: bool = False) -> str | None:
    value = fields.get(name)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool):
        return json.dumps(value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"`{name}` is {json.dumps(value)[:40]}; write it as a text in quotes")
    if name == "prompt" and value == "":
        raise ValueError("`prompt` is empty; give a text")
    return value


def messages_of(fields: Mapping[str, Any]) -> Iterator[Mapping[str, str]]:
    """Yield the turns of a line's `messages`; a ValueError says what is wrong with them and what to do."""
    turns = fields.get("messages")
    if turns is None:
        raise ValueError("neither `prompt` nor `messages`; give one of them")
    if not isinstance(turns, list) or not turns:
        raise ValueError('`messages` must be a list of turns like {"role": "user", "content": "..."}')
    for turn in turns:
        if not (isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)):
            raise ValueError("every turn of `messages` needs the texts `role` and `content`")
        yield turn


def _tests(fields: Mapping[str, Any]) -> object:
    """Return the tests as they are, with the fields that say how to run them where there are any."""
    told = {name: fields[name] for name in ("tests", "entry_point", "test_setup") if fields.get(name)}
    return told if len(told) > 1 else fields.get("tests")


def _step_answers(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(one, str | int | float) for one in value):
        raise ValueError("`step_answers` must be a list of results, one for each step of a solution")
    return tuple(one if isinstance(one, str) else json.dumps(one) for one in value)


def _choices(value: object) -> tuple[str, ...] | None:
    """Return the texts, A first, from a list or from an object of letters."""
    if value is None:
        return None
    if isinstance(value, dict):
        value = [value[letter] for letter in sorted(value)]
    if not isinstance(value, list) or not value or not all(isinstance(choice, str) for choice in value):
        raise ValueError("`choices` must be a list of texts, or an object of letters with a text each")
    return tuple(value)
