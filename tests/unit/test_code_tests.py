"""Tests of code: what passes, what fails, and what only pretends to pass."""

from __future__ import annotations

import ast
import gzip
import json
import random
import textwrap
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tts_orch.errors import ProblemError
from tts_orch.records import Problem
from tts_orch.rewards.base import Solution
from tts_orch.rewards.code_tests import CodeTestsModel
from tts_orch.sandbox.limits import Limits
from tts_orch.tasks.code.cases import numbered_cases
from tts_orch.tasks.code.problem_tests import FunctionTests, OutputTests, code_tests
from tts_orch.tasks.code.running import CodeVerdict, run_tests
from tts_orch.tasks.problems import read_problems

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the public benchmark data are not beside the repository")
SHORT = Limits(wall_s=20.0, cpu_s=1)

DOUBLE = FunctionTests(
    "def check(f):\n    assert f(1) == 2\n    assert f(2) == 4\n    assert f(-3) == -6\ncheck(double)", "double"
)
RIGHT = "def double(x):\n    return 2 * x"


def verdicts(tests: FunctionTests | OutputTests, program: str) -> list[bool]:
    return [case.passed for case in run_tests(tests, textwrap.dedent(program), SHORT).cases]


def test_every_assertion_has_a_verdict() -> None:
    assert verdicts(DOUBLE, RIGHT) == [True, True, True]
    verdict = run_tests(DOUBLE, "def double(x):\n    return x * x + 1", SHORT)
    assert [case.passed for case in verdict.cases] == [True, False, False]
    assert verdict.share == pytest.approx(1 / 3)
    assert not verdict.passed
    assert [case.name for case in verdict.cases] == ["f(1) == 2", "f(2) == 4", "f(-3) == -6"]
    assert verdict.cases[1].message == "AssertionError"


def test_exceptions_fail_one_assertion_only() -> None:
    verdict = run_tests(DOUBLE, "def double(x):\n    return 2 * x if x > 1 else 1 / 0", SHORT)
    assert [case.passed for case in verdict.cases] == [False, True, False]
    assert verdict.cases[0].message == "ZeroDivisionError: division by zero"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("def double(x:", "SyntaxError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("x = 1", "NameError: name 'double' is not defined"),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("import os\nos._exit(0)", "the program ends the process"),
    ],
)
def test_a_program_that_cannot_be_loaded_passes_nothing(program: str, message: str) -> None:
    verdict = run_tests(DOUBLE, program, SHORT)
    assert verdict.share == 0
    assert all(case.message.startswith(message) for case in verdict.cases)


def test_what_was_passed_before_a_hang_counts_for_the_share() -> None:
    program = "def double(x):\n    while x == 2: pass\n    return 2 * x"
    assert verdicts(DOUBLE, program) == [True, False, False]


@pytest.mark.parametrize(
    "program",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "import os\ndef double(x): os._exit(0)",
        "import sys\ndef double(x): sys.exit(0)",
        "import os\ndef double(x):\n    if x == 1: os._exit(0)\n    return 2 * x",
        "import builtins\nclass Never(BaseException): pass\nbuiltins.AssertionError = Never\ndef double(x): return 0",
        "import builtins\nbuiltins.all = lambda *_: True\ndef double(x): return 2 * x",
        "class Same:\n    def __eq__(self, other): return True\ndef double(x): return Same()",
        "class Same:\n    def __eq__(self, other): return 1\ndef double(x): return Same()",
        "def check(f): pass\ndef double(x): return 0",
        "def __case__(n): raise SystemExit\ndef __equal__(a, b): return True\ndef double(x): return 0",
        'print(\'["pass", 0]\'); print(\'["end", ""]\')\nimport os\nos._exit(0)',
        'import os\nfor fd in range(3, 9):\n    try: os.write(fd, b\'["end", ""]\\n\')\n    except OSError: pass\nos._exit(0)',
        "import sys\nsys.modules['__main__'].equal = lambda a, b: True\ndef double(x): return 0",
        "import types, traceback\ntypes.FunctionType = int\ntraceback.format_exception_only = 1\ndef double(x): return 0",
        "import atexit, os\natexit.register(os._exit, 0)\ndef double(x): return 0",
        "def double(x): raise StopIteration",
        "def double(x): return double(x)",
        "import threading\nthreading.Thread(target=lambda: __import__('os')._exit(0)).start()\nimport time; time.sleep(.2)",
    ],
)
def test_pretending_does_not_pass(program: str) -> None:
    assert not run_tests(DOUBLE, program, SHORT).passed


LOOP = FunctionTests("for i in range(5):\n    value = double(i)\n    assert value == 2 * i")


def test_a_loop_that_is_left_early_is_not_believed() -> None:
    for end in ("import os; os._exit(0)", "import sys; sys.exit(0)"):
        assert verdicts(LOOP, f"def double(x):\n    if x == 3: {end}\n    return 2 * x") == [False]
    assert verdicts(LOOP, RIGHT) == [True]


def test_nested_pretence_is_seen_and_honest_equality_is_not_hurt() -> None:
    tests = FunctionTests("assert pair() == [1, 2]")
    same = "class Same:\n    def __eq__(self, other): return True\n"
    assert verdicts(tests, same + "def pair(): return [Same(), Same()]") == [False]
    honest = "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\ndef p(): return P(1)"
    assert verdicts(FunctionTests("assert p() == P(1)\nassert not p() == P(2)"), honest) == [True, True]


def test_assertions_of_constants_prove_nothing_and_whole_sources_are_one_case() -> None:
    assert numbered_cases("assert True\nassert x == 1")[1] == ("x == 1",)
    assert numbered_cases("import unittest\nrun()")[1] == ("the tests",)
    assert verdicts(FunctionTests("double(1)"), RIGHT) == [True]
    assert verdicts(FunctionTests("raise ValueError"), RIGHT) == [False]


def test_assertions_that_are_never_reached_hold_if_the_tests_come_to_their_end() -> None:
    assert verdicts(FunctionTests("for x in []:\n    assert double(x) == 1"), RIGHT) == [True]


ECHO = OutputTests((("3\n1 2 3\n", "6"), ("1\n5\n", "5\n")))


@pytest.mark.parametrize(
    ("program", "passed"),
    [
        ("input(); print(sum(map(int, input().split())), end=' \\n\\n')", [True, True]),
        ("input(); print(6)", [True, False]),
        ("import sys; print(sum(map(int, sys.stdin.read().split()[1:]))); sys.exit(0)", [True, True]),
        ("print(6); import sys; sys.exit(1)", [False, False]),
        ("if __name__ == '__main__':\n    input(); print(sum(map(int, input().split())))", [True, True]),
    ],
)
def test_programs_that_read_and_write(program: str, passed: Sequence[bool]) -> None:
    assert verdicts(ECHO, program) == passed


def test_decimals_have_a_tolerance_and_integers_have_none() -> None:
    third = OutputTests((("", "0.333333"),))
    assert verdicts(third, "print(1 / 3)") == [True]
    assert verdicts(third, "print(0.34)") == [False]
    assert verdicts(OutputTests((("", "10000000"),)), "print(10000001)") == [False]


@pytest.mark.parametrize("tests", [3, [1], ["assert ("], "assert (", [{"input": "1"}], {"tests": {"a": 1}}])
def test_tests_of_no_known_form_are_refused_in_one_line(tests: object) -> None:
    with pytest.raises(ProblemError, match="problem 'p': `tests`") as caught:
        code_tests(Problem(id="p", prompt="?", tests=tests))
    assert "\n" not in str(caught.value)


def test_tests_are_parsed_once_however_many_outputs_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    parse = ast.parse

    def watched(source: str) -> ast.Module:
        parsed.append(source)
        return parse(source)

    monkeypatch.setattr(ast, "parse", watched)
    problem = Problem(id="p", prompt="?", tests=["assert tripled_once(2) == 6"])
    assert len({code_tests(problem) for _ in range(3)}) == 1
    assert len(parsed) == 1


def test_the_reward_is_the_share_of_passed_tests() -> None:
    problem = Problem(id="p", prompt="?", tests=["assert double(1) == 2", "assert double(2) == 4"])
    model = CodeTestsModel(SHORT)
    texts = [f"```python\n{RIGHT}\n```", "```python\ndef double(x): return 2\n```", "I do not know."]
    texts.append(f"<think>\n{texts[0]}\n</think>\n{texts[1]}")
    scores = model.score([Solution(problem, text) for text in texts])
    assert [one.scores for one in scores] == [(1.0,), (0.5,), (0.0,), (0.5,)]
    untested = model.score([Solution(Problem(id="q", prompt="?"), texts[0])])
    assert (untested[0].scores, untested[0].failure) == ((), "the problem has no tests")


def test_a_harmful_program_harms_no_other() -> None:
    problem = Problem(id="p", prompt="?", tests=["assert double(1) == 2"])
    bombs = ["import os\nwhile True: os.fork()\n", "x = bytearray(1 << 40)\n", "import os\nos.kill(-1, 9)\n"]
    texts = [f"```python\n{bomb}{RIGHT}\n```" for bomb in bombs] + [f"```python\n{RIGHT}\n```"]
    scores = CodeTestsModel(SHORT).score([Solution(problem, text) for text in texts])
    assert [one.scores for one in scores] == [(0.0,), (0.0,), (0.0,), (1.0,)]


def references(name: str) -> list[tuple[Problem, str]]:
    """Return problems with a reference program each."""
    with gzip.open(DATA / name, "rt", encoding="utf-8") as file:
        lines = {line["id"]: line for line in map(json.loads, file)}
    is_stub = name.startswith("humaneval")
    problems = read_problems(DATA / name)
    return [(p, (p.prompt or "") * is_stub + lines[p.id]["answer"]) for p in problems]


def failed(pairs: Sequence[tuple[Problem, str]]) -> list[tuple[str, CodeVerdict]]:
    def judged(pair: tuple[Problem, str]) -> tuple[str, CodeVerdict]:
        tests = code_tests(pair[0])
        assert tests is not None
        return pair[0].id, run_tests(tests, pair[1])

    with ThreadPoolExecutor(2) as pool:
        return [(name, verdict) for name, verdict in pool.map(judged, pairs) if not verdict.passed]


@needs_data
@pytest.mark.parametrize(("name", "n"), [("humaneval.jsonl.gz", 25), ("mbpp.jsonl.gz", 5)])
def test_references_pass(name: str, n: int) -> None:
    assert failed(random.Random(0).sample(references(name), n)) == []


@needs_data
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_all_references_pass() -> None:
    pairs = references("humaneval.jsonl.gz")
    assert len(pairs) == 164
    assert failed(pairs) == []
    with gzip.open(DATA / "mbpp.jsonl.gz", "rt", encoding="utf-8") as lines:
        tested = {line["id"] for line in map(json.loads, lines) if line["split"] == "test"}
    pairs = [pair for pair in references("mbpp.jsonl.gz") if pair[0].id in tested]
    assert len(pairs) == 500
    assert failed(pairs) == []
