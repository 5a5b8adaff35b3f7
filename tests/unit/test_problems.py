"""Problem files: the public data as they are, and one clear line for every mistake."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tts_orch.errors import ProblemError
from tts_orch.tasks.choice_task import ChoiceTask
from tts_orch.tasks.code.problem_tests import FunctionTests, code_tests
from tts_orch.tasks.code.task import CodeTask
from tts_orch.tasks.math_task import MathTask
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.registry import task_of
from tts_orch.tasks.text_task import TextTask

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"


KINDS = {
    "arc_challenge_test": ChoiceTask,
    "mmlu_stem_sample": ChoiceTask,
    "code_contests_sample": CodeTask,
    "humaneval": CodeTask,
    "mbpp": CodeTask,
    "bfcl": TextTask,
    "chat_dolly": TextTask,
    "chat_oasst1": TextTask,
    "chat_self_instruct": TextTask,
    "code_instruct": TextTask,
    "ner_wnut17": TextTask,
    "toolcall_chat": TextTask,
}


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "problems.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_fields_are_taken_over_and_others_ignored(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    lines = [
        {"id": "a", "prompt": "2 + 2?", "answer": 4, "domain": "math", "level": 3},
        {"id": 7, "messages": turns, "answer": None},
        {
            "id": "c",
            "prompt": "Which?",
            "choices": {"B": "no", "A": "yes"},
            "answer": "A",
            "tests": ["x"],
            "messages": turns,
        },
    ]
    path = written(tmp_path, "\ufeff" + "\r\n\r\n".join(json.dumps(line) for line in lines))
    first, second, third = read_problems(path)
    assert (first.id, first.prompt, first.answer, first.domain) == ("a", "2 + 2?", "4", "math")
    assert (second.id, second.prompt, second.messages, second.answer) == ("7", None, tuple(turns), None)
    assert (third.messages, third.choices, third.tests) == (None, ("yes", "no"), ["x"])


@pytest.mark.parametrize(("number", "text"), [("4", "4"), ("0.5", "0.5"), ("-3", "-3"), ('"4.0"', "4.0")])
def test_numeric_answers_become_text(tmp_path: Path, number: str, text: str) -> None:
    path = written(tmp_path, f'{{"id": "a", "prompt": "p", "answer": {number}}}')
    assert read_problems(path)[0].answer == text


def test_gzip_is_known_by_its_content(tmp_path: Path) -> None:
    assert read_problems(written(tmp_path, gzip.compress(b'{"id": "a", "prompt": "p"}\n')))[0].id == "a"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{oops}", "not valid JSON"),
        ("[1]", "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"prompt": "p"}', "no `id`"),
        ('{"id": "", "prompt": "p"}', "no `id`"),
        ('{"id": true, "prompt": "p"}', "`id` is true"),
        ('{"id": "b"}', "neither `prompt` nor `messages`"),
        ('{"id": "b", "prompt": ""}', "`prompt` is empty"),
        ('{"id": "b", "prompt": 3}', "`prompt` is 3"),
        ('{"id": "b", "prompt": "\\ud800"}', "not valid Unicode"),
        ('{"id": "b", "prompt": "p", "answer": ["4"]}', "`answer` is"),
        ('{"id": "b", "prompt": "p", "choices": "AB"}', "`choices` must be"),
        ('{"id": "b", "prompt": "p", "choices": []}', "`choices` must be"),
        ('{"id": "b", "messages": []}', "`messages` must be a list"),
        ('{"id": "b", "messages": [{"role": "user"}]}', "every turn of `messages`"),
        ('{"id": "b", "prompt": "p", "tests": ["assert ("]}', "problem 'b': `tests` is not valid Python"),
        ('{"id": "b", "prompt": "p", "tests": 3}', "problem 'b': `tests` must be"),
        ('{"id": "a", "prompt": "p"}', "the id 'a' was used before"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = written(tmp_path, f'{{"id": "a", "prompt": "p"}}\n\n{line}\n')
    with pytest.raises(ProblemError) as caught:
        read_problems(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "no problem in the file"),
        (b"\n \n", "no problem in the file"),
        (b'\xff{"id": 1}', "not valid Unicode"),
        (gzip.compress(b'{"id": "a", "prompt": "p"}' * 99, mtime=0)[:-30], "damaged gzip data"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(ProblemError, match=complaint):
        read_problems(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"absent\.jsonl: No such file"):
        read_problems(tmp_path / "absent.jsonl")


@pytest.mark.skipif(not DATA.is_dir(), reason="the public benchmark data are not beside the repository")
def test_public_benchmark_files_are_read_as_they_are() -> None:
    files = sorted([*DATA.glob("*.jsonl"), *DATA.glob("*.jsonl.gz")])
    assert len(files) == 25
    problems = {path.name.partition(".")[0]: read_problems(path) for path in files}
    for name, of_file in problems.items():
        assert all(problem.prompt for problem in of_file), name
        tasks = {type(task_of(problem)) for problem in of_file}
        assert tasks == {KINDS.get(name, MathTask)} or name in ("mt_bench", "spec_bench"), name  # of many kinds
    assert all(len(problem.choices or ()) >= 3 for problem in problems["arc_challenge_test"])
    assert sum(task_of(problem).can_grade(problem) for problem in problems["mbpp"]) == 934


def test_demo_problems_are_whole_prompts_with_answers() -> None:
    problems = read_problems(ROOT / "examples" / "problems" / "word_problems.jsonl")
    assert len(problems) == 60
    for problem in problems:
        assert problem.prompt is not None
        assert problem.prompt.count("\nA:") == 4
        assert problem.prompt.endswith("\nA:")
        assert problem.answer is not None
        assert 0 < int(problem.answer) <= 81


def test_tests_come_with_what_says_how_to_run_them(tmp_path: Path) -> None:
    line = {"id": "a", "prompt": "p", "tests": ["assert f(x) == 1"], "test_setup": "x = 0", "entry_point": "f"}
    (problem,) = read_problems(written(tmp_path, json.dumps(line)))
    assert problem.tests == {name: line[name] for name in ("tests", "test_setup", "entry_point")}
    assert code_tests(problem) == FunctionTests("x = 0\nassert f(x) == 1\n\ncheck(f)\n", "f")
