"""`benchmarks/vocabulary.py` from public files to tables and pictures, with the toy target and random heads."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.neural_toys import toy_facts, toy_head
from tests.toys import save_toy
from tts_orch.config import load_config
from tts_orch.drafters.checkpoint import save_head
from tts_orch.vocabulary.vocabulary_file import read_vocabulary

ROOT = Path(__file__).parents[2]
BENCHMARKS, RECIPES = ROOT / "benchmarks", ROOT / "recipes" / "drafters"
FUNCTION = {"name": "add", "description": "Adds. Well.", "parameters": {"properties": {"a": {}, "b": {}}}}
TURNS = (("user", "add 1 and 2"), ("tool_call", '{"name": "add"}'), ("tool", "3"), ("assistant", "it is 3"))
SHORT = ("--problems", "1", "--tokens", "8", "--nodes", "4", "--depth", "2", "--width", "2", "--speed-problems", "1")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Write a few lines of every file that the benchmark reads."""
    folder = tmp_path / "data"
    folder.mkdir()
    general = [{"id": f"q{i}", "prompt": f"say {i}", "answer": f"so {i} a", "solution": f"is {i}"} for i in range(4)]
    training = ("gsm8k_train", "chat_oasst1", "chat_self_instruct", "chat_dolly", "code_instruct")
    for name in (*training, "gsm8k_test", "mt_bench"):
        write(folder / f"{name}.jsonl.gz", general)
    call = json.dumps([{"add": {"a": [1, 2], "b": [""], "c": []}}])
    calls = [{"id": f"c{i}", "prompt": f"add {i}", "functions": [FUNCTION], "answer": call} for i in range(702)]
    write(folder / "bfcl.jsonl.gz", calls)
    turns = [{"role": role, "content": content} for role, content in TURNS]
    write(folder / "toolcall_chat.jsonl.gz", [{"id": "d", "functions": [FUNCTION], "messages": turns}])
    found = json.dumps([{"text": "rome", "type": "location"}])
    splits = ("train", "train", "dev", "test", "test")
    write(
        folder / "ner_wnut17.jsonl.gz",
        [{"id": f"s{i}", "prompt": "in rome", "answer": found, "split": split} for i, split in enumerate(splits)],
    )
    return folder


@pytest.fixture
def heads(tmp_path: Path) -> Path:
    """Write a head of every domain."""
    facts = replace(toy_facts(), weights_id="")
    for seed, name in enumerate(("mixed", "tools", "entities")):
        folder = tmp_path / "heads" / "eagle2" / name
        folder.mkdir(parents=True)
        save_head(folder, toy_head(facts, seed))
    return tmp_path / "heads"


def write(path: Path, lines: Sequence[dict[str, Any]]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import vocabulary

    return vocabulary


def run(benchmark: Any, *words: str) -> argparse.Namespace:
    arguments = benchmark.parser().parse_args(words)
    arguments.out.mkdir(parents=True, exist_ok=True)
    for part in arguments.parts:
        benchmark._PARTS[part](arguments)
    return arguments


def test_prompts_of_narrow_domains_show_the_question_and_answers_end_their_line(
    benchmark: Any, data: Path, tmp_path: Path
) -> None:
    run(benchmark, "texts", "--data", str(data), "--out", str(tmp_path / "out"))
    read = {
        path.stem: [*map(json.loads, path.read_text().splitlines())] for path in (tmp_path / "out").rglob("*.jsonl")
    }
    assert [one["id"] for one in read["bfcl"]] == ["c700", "c701"]
    assert [one["id"] for one in read["tools"][699:]] == ["c699", "d-1", "d-3"]
    assert read["tools"][0]["prompt"] == "Functions:\nadd(a, b): Adds\nRequest: add 0\nCalls:"
    assert read["tools"][0]["answer"] == ' [{"name": "add", "arguments": {"a": 1}}]\n'
    assert read["tools"][-1]["prompt"].endswith('Request: add 1 and 2\nCalls: [{"name": "add"}]\nResult: 3\nAnswer:')
    assert [one["id"] for one in read["entities"]] == ["s0", "s1", "s2"]
    assert [one["id"] for one in read["ner_wnut17"]] == ["s3", "s4"]
    for name in ("tools", "entities"):
        recipe = load_config(RECIPES / f"{name}.yaml")
        assert recipe["template"] == "raw"
        assert [part["file"] for part in recipe["data"]] == [f"{name}.jsonl"]
        assert (tmp_path / "out" / "texts" / "training" / f"{name}.jsonl").is_file()


def test_from_files_to_tables_and_pictures(
    benchmark: Any,
    data: Path,
    heads: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("vocabulary_parts.levels._REPEATS", 1)
    monkeypatch.setattr("vocabulary_parts.choices._TRIALS", 3)
    target, out = str(save_toy(tmp_path / "toy")), tmp_path / "out"
    places = ("--data", str(data), "--heads", str(heads), "--out", str(out), "--target", target)
    few = ("--losses", "eagle2", "--workloads", "bfcl", "--temperatures", "1", "--batches", "1", "--trees", "chain")
    measured = ("acceptance", "levels", "sizes", "speed")
    run(benchmark, "texts", "choices", "coverage", *measured, *places, *SHORT, *few, "--speed-workloads", "bfcl")
    assert read_vocabulary(out / "vocabularies" / "fixed.safetensors").vocabulary.size == 97 // 4
    results = {path.name: path.read_text().splitlines() for path in out.glob("*.jsonl")}
    assert len(results["acceptance.jsonl"]) == 3 * 3  # heads, vocabularies
    ways = json.loads(results["speed.jsonl"][0])["ways"]
    assert ways.keys() == {"plain", "plain again", "full", "fixed", "utility"}
    run(benchmark, *measured, *places, *SHORT, *few, "--speed-workloads", "bfcl")
    assert results == {path.name: path.read_text().splitlines() for path in out.glob("*.jsonl")}  # nothing twice
    capsys.readouterr()
    run(benchmark, "tables", "plots", *places)
    printed = capsys.readouterr().out
    titles = ("sizes", "Share of", "acceptance", "a drafted level", "speed")
    assert [printed.count(f"### {title}") for title in titles] == [2, 1, 1, 1, 1]
    assert (out / "sizes-eagle2.png").exists()
