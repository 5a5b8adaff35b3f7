"""The tests of a code problem, in the two forms that they come in."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tts_orch.errors import ProblemError
from tts_orch.records import Problem

__all__ = ["CodeTests", "FunctionTests", "OutputTests", "code_tests"]

_FORMS = 'a text of Python, a list of `assert` lines, or a list of {"input": "...", "output": "..."}'


@dataclass(frozen=True, slots=True)
class FunctionTests:
    """Tests that call what a program defines, as in HumanEval (arXiv 2107.03374) and MBPP (arXiv 2108.07732).

    Attributes:
        source: Python statements that run after the program's.
        entry_point: the function to write, where the problem names it.
    """

    source: str
    entry_point: str | None = None


@dataclass(frozen=True, slots=True)
class OutputTests:
    """Tests of what a program prints, as in CodeContests (arXiv 2203.07814).

    Attributes:
        cases: what the program reads, and what it is to write.
    """

    cases: tuple[tuple[str, str], ...]


CodeTests: TypeAlias = FunctionTests | OutputTests


def code_tests(problem: Problem) -> CodeTests | None:
    """Return the tests of a problem, None where it has none.

    Raises:
        ProblemError: `tests` has another form.
    """
    fields = problem.tests if isinstance(problem.tests, Mapping) else {"tests": problem.tests}
    tests = fields.get("tests")
    if not tests:
        return None
    if isinstance(tests, list) and all(isinstance(test, Mapping) for test in tests):
        return OutputTests(tuple((_text(problem, test, "input"), _text(problem, test, "output")) for test in tests))
    if isinstance(tests, list) and all(isinstance(test, str) for test in tests):
        tests = "\n".join(tests)
    if not isinstance(tests, str):
        raise ProblemError(f"problem {problem.id!r}: `tests` must be {_FORMS}")
    entry_point = str(fields["entry_point"]) if fields.get("entry_point") else None
    call = f"\n\ncheck({entry_point})\n" if entry_point else ""
    return FunctionTests(_checked(problem, f"{fields.get('test_setup') or ''}\n{tests}{call}"), entry_point)


def _text(problem: Problem, test: Mapping[str, object], name: str) -> str:
    value = test.get(name)
    if not isinstance(value, str):
        raise ProblemError(f"problem {problem.id!r}: `tests` has a test without the text `{name}`; add it")
    return value


def _checked(problem: Problem, source: str) -> str:
    mistake = _syntax_mistake(source)
    if mistake is not None:
        raise ProblemError(f"problem {problem.id!r}: `tests` is not valid Python ({mistake}); give {_FORMS}")
    return source


@functools.lru_cache(maxsize=1 << 10)
def _syntax_mistake(source: str) -> str | None:
    """Say what keeps a source from being Python; asked for with every output of a problem, and large tests take long to parse."""
    try:
        ast.parse(source)
    except SyntaxError as error:
        return error.msg
    return None
