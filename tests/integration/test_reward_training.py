"""`tts-orch reward train` from problems to a head, with rollouts of a toy target over Ray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.toys import save_toy
from tts_orch.cli import execute
from tts_orch.rewards.process_head import read_head
from tts_orch.tasks.problems import read_problems

pytestmark = [pytest.mark.timeout(180)]

QUICK = ["--template", "raw", "--max-new-tokens", "30", "--solutions", "2", "--rollouts", "2", "--delimiters", "\n"]
SMALL = ["--epochs", "3", "--held-out", "0.4", "--threads", "1", "--kv-memory-gib", "0.02", "--device", "cpu"]


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    return save_toy(tmp_path / "toy")


def write_problems(path: Path, n: int = 6) -> Path:
    lines = [{"id": f"p{i}", "prompt": f"{i} + 1 = {i + 1}\n", "answer": str(i)} for i in range(n)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.usefixtures("ray_session")
def test_an_interrupted_training_goes_on_and_ends_with_the_same_head(
    toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = write_problems(tmp_path / "problems.jsonl")

    def train(out: str) -> int:
        return execute(
            ["reward", "train", str(problems), "--target", str(toy), "--out", str(tmp_path / out), *QUICK, *SMALL]
        )

    assert train("whole") == 0
    assert "held out" in capsys.readouterr().out

    with monkeypatch.context() as patched:
        patched.setattr("tts_orch.training.rollout_cache.JsonLinesFile", InterruptedFile)
        assert train("cut") == 130
    assert f"go on in {tmp_path / 'cut'}" in capsys.readouterr().err
    (labels,) = (tmp_path / "cut").glob("cache/*/labels-soft.jsonl")
    assert len(labels.read_text().splitlines()) == 2
    assert train("cut") == 0
    assert len(labels.read_text().splitlines()) == 6
    whole, cut = (load_file(tmp_path / out / "head.safetensors") for out in ("whole", "cut"))
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
    (candidates,) = (tmp_path / "cut").glob("cache/*/candidates.jsonl")
    keys = [(line["problem_id"], *line["path"]) for line in map(json.loads, candidates.read_text().splitlines())]
    assert len(keys) == len(set(keys)), "nothing was sampled twice"
    config, _ = read_head(tmp_path / "cut")
    assert config.training["problems"] == 6
    assert config.training["generated_tokens"] > 0
    assert (config.template, config.delimiters) == ("raw", ("\n",))


class InterruptedFile:
    """Takes two lines and is interrupted at the third."""

    def __init__(self, path: Path) -> None:
        from tts_orch.json_lines import JsonLinesFile

        self._file = JsonLinesFile(path)
        self._n_lines = 0

    def append(self, values: dict[str, object]) -> None:
        if self._n_lines == 2:
            raise KeyboardInterrupt
        self._file.append(values)
        self._n_lines += 1

    def close(self) -> None:
        self._file.close()


def test_given_labels_need_no_rollouts(toy: Path, tmp_path: Path) -> None:
    lines = [
        {"id": str(i), "prompt": f"{i}?", "steps": ["1 + 1", "the end"], "step_labels": [1, i % 2], "in_test": i < 4}
        for i in range(12)
    ]
    file = tmp_path / "labels.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    out = tmp_path / "head"
    assert execute(["reward", "train", "--labels", str(file), "--target", str(toy), "--out", str(out), *SMALL]) == 0
    config, head = read_head(out)
    assert config.training["labels"] == "given"
    assert config.held_out["steps"] >= 8
    assert config.training["steps"] + config.held_out["steps"] == 24
    assert head(torch.zeros(1, config.hidden_size)).shape == (1,)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "x.jsonl", "x.jsonl"], "give either PROBLEMS"),
        ([], "give either PROBLEMS"),
        (["--labels", "x.jsonl", "--held-out-problems", "y.jsonl"], "they are labelled by rollouts"),
        (["--labels", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["unanswered.jsonl"], "problem 'a' has no answer"),
        (["--labels", "x.jsonl", "--layer", "9"], "hidden states -3 to 2, not 9"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    message: str,
    toy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("unanswered.jsonl").write_text('{"id": "a", "prompt": "1?"}\n')
    Path("x.jsonl").write_text('{"id": "a", "prompt": "1?", "steps": ["a"], "step_labels": [1]}\n')
    assert execute(["reward", "train", *arguments, "--target", str(toy), "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_problem_files_are_read_by_run(tmp_path: Path) -> None:
    file = tmp_path / "test.jsonl"
    assert execute(["reward", "problems", str(file), "--part", "test", "-n", "9", "--steps", "2"]) == 0
    problems = read_problems(file)
    assert len(problems) == 9
    assert all(problem.answer and problem.domain == "math" for problem in problems)
