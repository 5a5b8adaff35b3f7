"""Find the program in a model's output."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Final

from tts_orch.records import Problem
from tts_orch.tasks.code.markdown import code_blocks
from tts_orch.tasks.code.parsing import called_name, defines, leading_python
from tts_orch.tasks.code.problem_tests import FunctionTests, code_tests

__all__ = ["extract_program"]

_FIRST_LINE: Final = re.compile(r"^(?:import |from \w|def |async def |class |@|if __name__)", re.MULTILINE)
_PYTHON: Final = ("python", "python3", "py")


def extract_program(problem: Problem, text: str) -> str | None:
    """Return a program that can be tested by itself, None where the output has none that compiles.

    Where a problem asks for a function, the last code block that defines it is taken; where its prompt is the beginning of
    that function, the prompt comes first, and an output that defines nothing is its body. Elsewhere the longest code block
    is taken, one marked as Python before others, and text without code blocks up to the line where it stops being Python.
    """
    tests = code_tests(problem)
    pieces = list(_pieces(text))
    if not isinstance(tests, FunctionTests):
        return max(pieces, key=len, default=None)
    stub = _stub(problem, tests.entry_point)
    name = tests.entry_point or called_name(tests.source)
    whole = next((piece for piece in reversed(pieces) if name and defines(piece, name)), None)
    if whole is not None:
        return f"{stub}\n\n{whole}" if stub else whole
    if stub:
        bodies = [block.code for block in reversed(code_blocks(text))] or [text]
        return next(_completed(stub, bodies), None)
    return max(pieces, key=len, default=None)


def _pieces(text: str) -> Iterator[str]:
    """Yield what may be code, in order."""
    blocks = code_blocks(text)
    marked = [block for block in blocks if block.language in _PYTHON]
    for block in marked or blocks:
        code = leading_python(block.code)
        if code is not None:
            yield code
    first = _FIRST_LINE.search(text)
    if not blocks and first:
        code = leading_python(text) or leading_python(text[first.start() :])
        if code is not None:
            yield code


def _stub(problem: Problem, entry_point: str | None) -> str:
    """Return the prompt where it is Python that begins the function, else nothing."""
    prompt = (problem.prompt or "").rstrip()
    return prompt if entry_point and defines(prompt, entry_point) else ""


def _completed(stub: str, bodies: list[str]) -> Iterator[str]:
    """Yield the function with each body that fits, as it is and indented."""
    n_lines = len(stub.splitlines())
    for body in bodies:
        for form in (body, textwrap.indent(textwrap.dedent(body), "    ")):
            program = leading_python(stub + "\n" + form.strip("\n"), n_lines)
            if program is not None:
                yield program
