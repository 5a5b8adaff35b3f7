"""Run the tests of a code problem against a program: a verdict for each test, and the share that it passes."""

from __future__ import annotations

import functools
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tts_orch.sandbox.isolation import isolation
from tts_orch.sandbox.limits import DEFAULT_LIMITS, Limits
from tts_orch.sandbox.programs import Outcome, run_python
from tts_orch.tasks.code.cases import numbered_cases
from tts_orch.tasks.code.outputs import same_output
from tts_orch.tasks.code.problem_tests import CodeTests, FunctionTests, OutputTests

__all__ = ["CaseVerdict", "CodeVerdict", "run_tests"]

_HARNESS: Final = Path(__file__).with_name("harness.py")
_ALL_TESTS_S: Final = 120.0  # of the tests of a program together


@dataclass(frozen=True, slots=True)
class CaseVerdict:
    """The verdict of one test.

    Attributes:
        name: what it tests.
        passed: whether the program passes it.
        message: why not.
    """

    name: str
    passed: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class CodeVerdict:
    """The verdicts of all tests of a problem.

    Attributes:
        cases: one for each test, never none.
    """

    cases: tuple[CaseVerdict, ...]

    @property
    def passed(self) -> bool:
        """Whether all tests are passed."""
        return all(case.passed for case in self.cases)

    @property
    def share(self) -> float:
        """Share of the tests that are passed."""
        return sum(case.passed for case in self.cases) / len(self.cases)


@functools.lru_cache(maxsize=1 << 14)
def run_tests(tests: CodeTests, program: str, limits: Limits = DEFAULT_LIMITS) -> CodeVerdict:
    """Return the verdicts; they are kept, so a program is run once. Safe to call from many threads.

    Args:
        tests: of the problem.
        program: source text, as `extract_program` returns it.
        limits: for each run of the program: one for all tests of a function, one for each input.

    Raises:
        RunError: no program can be run on this system.
    """
    isolation()  # warns where programs are not shut in
    if isinstance(tests, FunctionTests):
        return _call(tests, program, limits)
    return CodeVerdict(tuple(_read_and_write(tests, program, limits)))


def _read_and_write(tests: OutputTests, program: str, limits: Limits) -> Iterator[CaseVerdict]:
    started = time.monotonic()
    for number, (given, expected) in enumerate(tests.cases, start=1):
        name = f"input {number}"
        if time.monotonic() - started > _ALL_TESTS_S:
            yield CaseVerdict(name, False, "no time left")
            continue
        outcome = run_python(program, given, limits)
        is_right = outcome.exit_code == 0 and same_output(outcome.output, expected)
        yield CaseVerdict(name, is_right, "" if is_right else _what_went_wrong(outcome))


def _what_went_wrong(outcome: Outcome) -> str:
    if outcome.took_too_long:
        return "took too long"
    if outcome.exit_code == 0:
        return "wrong output"
    return outcome.last_error[:200] or f"exit code {outcome.exit_code}"


def _call(tests: FunctionTests, program: str, limits: Limits) -> CodeVerdict:
    source, names = numbered_cases(tests.source)
    secret = secrets.token_hex(16)
    task = json.dumps({"program": program, "tests": source, "secret": secret})
    outcome = run_python(_HARNESS.read_text(encoding="utf-8"), task, limits)
    course = _Course.of(outcome, secret)
    return CodeVerdict(tuple(course.verdict(number, name) for number, name in enumerate(names)))


@dataclass(slots=True)
class _Course:
    """What the harness told of its tests."""

    passed: set[int] = field(default_factory=set)
    failed: dict[int, str] = field(default_factory=dict)
    last: int | None = None
    stopped: str = ""  # why the tests did not come to their end

    @classmethod
    def of(cls, outcome: Outcome, secret: str) -> _Course:
        stopped = "took too long" if outcome.took_too_long else "the program ends the process"
        course = cls(stopped=stopped)
        for line in outcome.output.splitlines():
            if line.startswith(secret):
                course.follow(json.loads(line[len(secret) :]))
        return course

    def follow(self, event: Sequence[object]) -> None:
        match event:
            case ["enter", int(number)]:
                self.last = number
            case ["pass", int(number)]:
                self.passed.add(number)
            case ["fail", int(number), str(why)]:
                self.failed.setdefault(number, why)
            case ["end", str(why)]:
                self.stopped = why

    def verdict(self, number: int, name: str) -> CaseVerdict:
        """Judge as running all tests would: what was not reached counts as passed only if the tests came to their end.

        Where they did not, the assertion that was reached last is not believed: it may stand in a loop.
        """
        if number in self.failed:
            return CaseVerdict(name, False, self.failed[number])
        is_passed = not self.stopped or (number in self.passed and number != self.last)
        return CaseVerdict(name, is_passed, "" if is_passed else self.stopped)
