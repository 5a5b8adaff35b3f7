"""Loads a program and runs its tests, all in this one process; started within the sandbox, on the standard library alone.

Reads `program`, `tests` (numbered, see `cases.py`) and `secret` as JSON from standard input, and writes a line for each event
to standard output, the secret in front: ["enter", number], ["pass", number], ["fail", number, why] and at last ["end", why not
to the end]. What the program itself prints goes nowhere. A program that ends the process early sends no "end", and one that
does not know the secret cannot send it itself.

Program and tests share a process, so a program written against this very file could find the secret. What a model writes to
pass tests without solving the problem does not.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from collections.abc import Callable
from traceback import format_exception_only
from types import FunctionType, ModuleType

LONGEST_REASON = 200

Report = Callable[..., object]


def main() -> None:
    """Run the tests and end the process, whatever threads the program left."""
    task = json.load(sys.stdin)
    report = reporter(task.pop("secret"))
    try:
        run(task["program"], task["tests"], report)
    except BaseException as error:
        report("end", reason(error))
    else:
        report("end", "")
    os._exit(0)


def reporter(secret: str) -> Report:
    """Return a function that reports an event; standard input, output and error lead nowhere from now on."""
    channel, write, dumps = os.dup(1), os.write, json.dumps
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    return lambda *event: write(channel, f"{secret}{dumps(event)}\n".encode())


def run(program: str, tests: str, report: Report) -> None:
    """Execute the program as a module, then the tests in a namespace that it does not see."""
    cases = Cases(report)
    module = ModuleType("solution")
    sys.modules["solution"] = sys.modules["__main__"] = module  # this file is not to be found by its name
    exec(compile(program, "program.py", "exec", dont_inherit=True), vars(module))
    namespace = {**vars(module), "__case__": cases.enter, "__equal__": equal}
    exec(compile(tests, "tests.py", "exec", dont_inherit=True), namespace)


class Cases:
    """Reports the verdict of each assertion and lets the tests go on; made before the program is executed."""

    def __init__(self, report: Report) -> None:
        """Remember the builtins as they are.

        Args:
            report: where to tell.
        """
        self._report = report
        self._builtins = vars(builtins)
        self._as_found = dict(self._builtins)
        self._number = -1
        self._passed: set[int] = set()

    def enter(self, number: int) -> Cases:
        """Begin the assertion of this number, which is the body of a `with` statement."""
        if number != self._number:  # one in a loop is told of once
            self._number = number
            self._report("enter", number)
        return self

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, origin: object) -> bool:
        """Report the verdict."""
        for name in self._as_found:  # calls no builtin: it may be another one by now
            if name not in self._builtins or self._builtins[name] is not self._as_found[name]:
                error = RuntimeError("the program changes " + name)
        if error is not None:
            self._report("fail", self._number, reason(error))
        elif self._number not in self._passed:
            self._passed.add(self._number)
            self._report("pass", self._number)
        return True


def equal(left: object, right: object) -> object:
    """Compare as `==` does, but refuse values that equal anything."""
    if equals_anything(left) or equals_anything(right):
        raise AssertionError("a value that equals anything")
    return left == right


def equals_anything(value: object) -> bool:
    """Return whether a value, or one in it, claims to be equal to an object that was made just now."""
    kind = type(value)
    if isinstance(value, list | tuple | set | frozenset) and kind.__module__ == "builtins":
        return any(map(equals_anything, value))
    if isinstance(value, dict) and kind is dict:
        return any(map(equals_anything, value.values()))
    return isinstance(kind.__eq__, FunctionType) and bool(value == object())


def reason(error: BaseException) -> str:
    """Return what an exception says, in one line."""
    return " ".join(format_exception_only(error)[-1].split())[:LONGEST_REASON]


if __name__ == "__main__":
    main()
