"""Programs in outputs of models."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.records import Problem
from tts_orch.tasks.code.extraction import extract_program
from tts_orch.tasks.code.markdown import code_blocks
from tts_orch.tasks.code.parsing import called_name, is_python, leading_python, normal_form

STUB = 'from typing import List\n\n\ndef double(x: int) -> int:\n    """ Return twice x.\n    """\n'
COMPLETION = Problem(
    id="h", prompt=STUB, tests={"tests": "def check(f):\n    assert f(2) == 4", "entry_point": "double"}
)
FUNCTION = Problem(id="m", prompt="Write a function to double.", tests=["assert double(2) == 4"])
PROGRAM = Problem(id="p", prompt="Read a number.", tests=[{"input": "2", "output": "4"}])
RIGHT = "def double(x):\n    return 2 * x"


def result(program: str | None) -> object:
    assert program is not None
    names: dict[str, object] = {}
    exec(program, names)
    double = names["double"]
    assert callable(double)
    return double(2)


@pytest.mark.parametrize(
    "output",
    [
        "    return 2 * x\n",
        "\n    y = x\n    return y + x\n\n\ndef other():\n    pass\n",
        "    return 2 * x\n\n# Test\nprint(double(3))\n",
        "    return 2 * x\n\nThis doubles the number.",
        "    return helper(x)\n\n\ndef helper(x):\n    return 2 * x\n\nassert double(",
        "return 2 * x",
        f"```python\n{RIGHT}\n```",
        f"Here it is:\n\n```python\n{STUB}    return 2 * x\n```\nIt doubles.",
        "```python\n    return 2 * x\n```",
        "```\nreturn 2 * x\n```",
        f"```python\n{RIGHT}\n```\nFor example:\n```python\nprint(double(2))\n```",
        f"```python\ndef double(x):\n    return 3\n```\nWait:\n```python\n{RIGHT}\n```",
        f"```python\n{RIGHT}",
        f"{RIGHT}\n\nThis is it.",
    ],
)
def test_a_function_is_completed_or_written_anew(output: str) -> None:
    program = extract_program(COMPLETION, output)
    assert result(program) == 4
    assert program is not None
    assert program.startswith("from typing import List")


@pytest.mark.parametrize("output", ["", "I cannot.", "    # nothing\n".strip(), "```\n\n```", "    return (2 *\n"])
def test_no_body_no_program(output: str) -> None:
    program = extract_program(COMPLETION, output)
    assert program is None or result(program) is None


@pytest.mark.parametrize(
    ("output", "program"),
    [
        (f"```python\n{RIGHT}\n```", RIGHT),
        (f"~~~py\n{RIGHT}\n~~~", RIGHT),
        (f"````\n{RIGHT}\n````", RIGHT),
        (f"- first\n  ```python\n  {RIGHT.replace(chr(10), chr(10) + '  ')}\n  ```", RIGHT),
        (f"Sure!\n{RIGHT}\nIt works.", RIGHT),
        (f"```python\n{RIGHT}\n```\n```python\nassert double(2) == 4\n```", RIGHT),
        (f"```\n$ python x.py\n```\n```python\n{RIGHT}\n```", RIGHT),
        ("double = lambda x: 2 * x", None),
        ("```python\ndouble = lambda x: 2 * x\n```", "double = lambda x: 2 * x"),
        ("I do not know.", None),
        ("```cpp\nint double_(int x) { return 2 * x; }\n```", None),
        ("```python\n\x00\n```", None),
        ("```python\n" + "(" * 5000 + "\n```", None),
    ],
)
def test_a_function_stands_in_its_block(output: str, program: str | None) -> None:
    assert extract_program(FUNCTION, output) == program


def test_the_longest_python_block_is_the_program() -> None:
    long = "n = int(input())\nprint(2 * n)"
    assert (
        extract_program(PROGRAM, f"Input:\n```\n2\n```\n```python\n{long}\n```\nor\n```python\nprint(4)\n```") == long
    )
    assert extract_program(PROGRAM, f"import sys\n{long}\n\nIt reads.") == f"import sys\n{long}"
    assert extract_program(PROGRAM, "It prints four.") is None


def test_blocks_and_their_languages() -> None:
    blocks = code_blocks("a ``` b\n```Python title=x\n1\n```\n~~~\n2\n```\n~~~\n```\n3")
    assert [(block.language, block.code) for block in blocks] == [("python", "1\n"), ("", "2\n```\n"), ("", "3")]


def test_the_name_that_tests_call() -> None:
    assert called_name("assert set(double([1])) == set([2])") == "double"
    assert called_name("import math\nassert math.isclose(area(2), 4)") == "area"
    assert called_name("def close(a, b): return a == b\nassert close(area(2), 4)") == "area"
    assert called_name("assert 1 == 1") is None


def test_normal_forms() -> None:
    assert normal_form("x=1 # one") == normal_form("x = (1)")
    assert normal_form('def f():\n    "Doc."\n') == normal_form("def f(): pass")
    assert normal_form("def f(): return 1") != normal_form("def f(): return 2")
    assert normal_form(" not python( ") == "not python("


@pytest.mark.parametrize(
    "piece", ["(", "def f():\n", "x = '", "```python\n", "if x:\n  ", "\\", "é\n", "import a\n)\n"]
)
def test_endless_babble_takes_no_time(piece: str) -> None:
    started = time.process_time()
    for problem in (COMPLETION, FUNCTION, PROGRAM):
        extract_program(problem, piece * 5000)
    assert time.process_time() - started < 8


@given(st.text(alphabet="def f(x):\n `~python=1#\"'\\", max_size=80))
def test_whatever_is_found_compiles(text: str) -> None:
    for problem in (COMPLETION, FUNCTION, PROGRAM):
        program = extract_program(problem, text)
        assert program is None or is_python(program)
    leading = leading_python(text)
    assert leading is None or is_python(leading)
