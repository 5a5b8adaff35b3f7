"""`tts-orch vocabulary`: trim, apply, show, and mistakes in one line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.finished_runs import finished_run
from tests.neural_toys import toy_facts, toy_head
from tests.toys import EOS_ID, VOCABULARY_SIZE, save_toy, toy_tokenizer
from tts_orch.cli import execute
from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.replay.recovery import FinishedRun
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary
from tts_orch.vocabulary.vocabulary_file import VocabularyFile, read_vocabulary, write_vocabulary

ANSWERS = ("the end of the text", "an end", "the text in the end")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A working directory with a target and texts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    save_toy(tmp_path / "toy")
    lines = ({"id": str(i), "prompt": f"{i}+{i}", "answer": ANSWERS[i % 3]} for i in range(60))
    Path("x.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()  # the toy's own bars
    return tmp_path


def trim(*arguments: str, data: tuple[str, ...] = ("--data", "x.jsonl")) -> int:
    return execute(["vocabulary", "trim", *data, "--target", "toy", "--out", "out", *arguments])


def save_toy_head(name: str, **changes: str) -> Path:
    """Write a head for the toy target."""
    head = toy_head(toy_facts(), architecture="eagle3")
    head.config = replace(head.config, **{"target_weights_id": "", **changes})
    Path(name).mkdir()
    save_head(Path(name), head)
    return Path(name)


def report() -> dict[str, object]:
    values: dict[str, object] = json.loads(Path("out/report.json").read_text())
    return values


def test_a_vocabulary_has_what_was_counted_and_what_is_kept(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert trim("--keep", "{", "--held-out", "0.2") == 0
    printed = capsys.readouterr().out
    assert (
        "out: 50 tokens; trim a head by `tts-orch vocabulary apply --vocabulary out/vocabulary.safetensors" in printed
    )
    assert f"tokens counted, {report()['held_out_tokens']} held out" in printed
    assert "held_out" not in caplog.text
    assert not Path("out/cache").exists()
    read = read_vocabulary(Path("out/vocabulary.safetensors"))
    tokenizer = toy_tokenizer()
    counted = {i for answer in ANSWERS for i in tokenizer(answer, add_special_tokens=False)["input_ids"]}
    tokens = {tokenizer.convert_ids_to_tokens(int(i)) for i in read.vocabulary.ids}
    assert counted | {EOS_ID} <= set(read.vocabulary.ids.tolist())
    assert {"{", "7", "\n\n", "<bos>"} <= tokens
    assert dict(zip(read.vocabulary.ids.tolist(), read.counts.tolist(), strict=True))[EOS_ID] > 30
    assert sum(read.counts) == sum(read.provenance["counted_tokens"].values())
    chosen = report()["chosen"]
    assert isinstance(chosen, dict)
    assert chosen["scan"]["coverage"] == chosen["scan"]["held_out_coverage"] == 1
    assert chosen["scan"]["utility"] >= chosen["TPE"]["utility"]
    assert Path("out/vocabulary.png").stat().st_size > 10_000


def test_what_is_only_tried_is_not_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert trim("--dry-run") == 0
    assert "nothing written" in capsys.readouterr().out
    assert not Path("out").exists()


def test_coverage_of_other_texts_is_not_claimed_where_none_is_held_out(caplog: pytest.LogCaptureFixture) -> None:
    assert trim("--held-out", "0.00001") == 0
    (warning,) = caplog.messages
    assert "held_out: a share of 1e-05 is none of these 60 texts" in warning
    assert report()["held_out_tokens"] == 0
    assert "held_out_coverage" not in report()


def test_recipes_name_the_texts(folder: Path) -> None:
    Path("recipe.yaml").write_text("data: [{file: x.jsonl, tokens: 100}]\nhead: {loss: eagle3}\n")
    assert trim("--config", "recipe.yaml", data=()) == 0
    assert report()["counted_tokens"] == {"x.jsonl": 100}


def test_parts_of_one_file_are_all_counted(folder: Path) -> None:
    Path("recipe.yaml").write_text(
        "data: [{file: x.jsonl, tokens: 100, rows: [0, 40]}, {file: x.jsonl, tokens: 50, rows: [40, 60]}]\n"
    )
    assert trim("--config", "recipe.yaml", data=()) == 0
    assert report()["counted_tokens"] == {"x.jsonl": 150}
    assert sum(read_vocabulary(Path("out/vocabulary.safetensors")).counts) == 150


def test_candidates_of_a_run_are_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    finished_run(folder / "run", folder / "toy")
    assert trim("--run", "run", "--held-out", "0.0001", data=()) == 0
    candidates = [one for group in FinishedRun.read(folder / "run").candidates.values() for one in group]
    assert report()["counted_tokens"] == {"run": sum(one.n_tokens for one in candidates)}


def test_a_head_is_trimmed(capsys: pytest.CaptureFixture[str]) -> None:
    save_toy_head("head")
    assert trim("--drafter", "head") == 0
    file = "out/vocabulary.safetensors"
    assert execute(["vocabulary", "apply", "--drafter", "head", "--vocabulary", file, "--out", "small"]) == 0
    assert f"small: 50 of {VOCABULARY_SIZE} tokens; draft with it by" in capsys.readouterr().out
    assert read_head(Path("small")).vocabulary == read_vocabulary(Path(file)).vocabulary


def test_the_fastest_size_is_chosen_where_sizes_are_measured(capsys: pytest.CaptureFixture[str]) -> None:
    save_toy_head("head")
    small = ["--sizes", "3", "--replay-tokens", "20", "--max-nodes", "6", "--kv-memory-gib", "0.1", "--held-out", "0.2"]
    assert trim("--drafter", "head", "--objective", "measured", *small) == 0
    printed = capsys.readouterr().out
    assert "Measured on this device" in printed
    measured = report()["measured"]
    assert isinstance(measured, list)
    assert [one["size"] for one in measured] == sorted({one["size"] for one in measured})
    assert measured[-1]["size"] == VOCABULARY_SIZE
    fastest = max(measured, key=lambda one: one["tokens_per_second"])
    assert read_vocabulary(Path("out/vocabulary.safetensors")).vocabulary.size == fastest["size"]
    equal = [one["size"] for one in measured if one is not fastest and one["high"] >= fastest["low"]]
    assert (
        f"as fast as {fastest['size']}, as far as this device tells: {', '.join(map(str, equal)) or 'none'}" in printed
    )
    for one in measured:
        assert one["low"] <= one["tokens_per_second"] <= one["high"]
        seconds = one["verify_seconds"] + 5 * one["level_seconds"]
        assert one["tokens_per_second"] == pytest.approx(one["tau"] / seconds)


def test_a_vocabulary_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    content = VocabularyFile(
        DraftVocabulary(np.array([1, 2]), 9), np.array([7, 0]), {"kept": {"stop": 1}, "alpha": 0.25}
    )
    write_vocabulary(Path("v"), content)
    assert execute(["vocabulary", "show", "v"]) == 0
    out = capsys.readouterr().out
    assert all(text in out for text in ("2 of 9", "never counted", "stop: 1", "0.25"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "data: there is nothing to count; give at least one file, or a run"),
        (["--data", "x.jsonl", "--answer-field", "text"], "no text in `text`"),
        (["--data", "x.jsonl:90000"], "x.jsonl has"),
        (["--data", "x.jsonl", "--keep", "97"], "keep: there is no token 97"),
        (["--data", "x.jsonl", "--objective", "measured"], "drafter: nothing can be measured without one"),
        (["--data", "x.jsonl", "--drafter", "nowhere"], "nowhere/config.json: No such file"),
        (["--data", "x.jsonl", "--drafter", "other"], "other: a head for another target"),
        (["--data", "x.jsonl", "--answers", "target", "--dry-run"], "--dry-run: the target's answers"),
        (["--data", "x.jsonl", "--target", "absent"], "absent"),
        (["--run", "nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    save_toy_head("other", target_weights_id="other")
    given = [] if "--target" in arguments else ["--target", "toy"]
    assert execute(["vocabulary", "trim", *arguments, *given, "--out", "out"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


def test_what_does_not_go_together_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    head = save_toy_head("head", target_tokenizer_id="its own")
    for name, ids, provenance in (
        ("few", [1, 2], {}),
        ("many", [1, 2, 3], {}),
        ("foreign", [1], {"target_tokenizer_id": "another"}),
    ):
        vocabulary = DraftVocabulary(np.array(ids), VOCABULARY_SIZE)
        write_vocabulary(Path(name), VocabularyFile(vocabulary, np.zeros(len(ids), np.int64), provenance))

    def apply(drafter: str | Path, file: str, out: str) -> int:
        return execute(["vocabulary", "apply", "--drafter", str(drafter), "--vocabulary", file, "--out", out])

    assert apply(head, "few", "small") == 0
    capsys.readouterr()
    assert apply(head, "foreign", "no") == 2
    assert "foreign: counted with another tokenizer than that of head" in capsys.readouterr().err
    assert apply("small", "many", "no") == 2
    assert "some of its 3 tokens are not among the 2 of the head" in capsys.readouterr().err
    assert trim("--drafter", "small") == 2
    assert "small: trimmed already, to 2 tokens" in capsys.readouterr().err


def test_a_published_head_is_trimmed_for_its_target(capsys: pytest.CaptureFixture[str]) -> None:
    head = toy_head(toy_facts())
    published, config = Path("published"), head.config
    published.mkdir()
    save_file(dict(head.state_dict()), published / "model.safetensors")
    sizes = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "vocab_size",
        "hidden_act",
    )
    shape = {name: getattr(config, name) for name in sizes}
    (published / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": config.max_context}))
    vocabulary = DraftVocabulary(np.array([1, 2, 5]), VOCABULARY_SIZE)
    write_vocabulary(Path("v"), VocabularyFile(vocabulary, np.zeros(3, np.int64), {}))
    command = ["vocabulary", "apply", "--drafter", "published", "--vocabulary", "v", "--out", "small"]
    assert execute(command) == 2
    assert "published: not a head of `tts-orch drafter train`; give its --target" in capsys.readouterr().err
    assert execute([*command, "--target", "toy"]) == 0
    trimmed = read_head(Path("small"))
    assert trimmed.vocabulary == vocabulary
    assert trimmed.config.target_weights_id
    weights = trimmed.state_dict()
    assert all(torch.equal(weights[name], weight) for name, weight in head.state_dict().items())
    assert (
        execute(["vocabulary", "apply", "--drafter", "toy", "--vocabulary", "v", "--out", "no", "--target", "toy"]) == 2
    )
    assert "toy: a language model; give the folder of a draft head" in capsys.readouterr().err


def test_the_head_that_is_trimmed_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    save_toy_head("head")
    write_vocabulary(
        Path("v"), VocabularyFile(DraftVocabulary(np.array([1, 2]), VOCABULARY_SIZE), np.zeros(2, np.int64), {})
    )
    assert execute(["vocabulary", "apply", "--drafter", "head", "--vocabulary", "v", "--out", "./head/"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "--out: head is the folder of the head itself" in line
    assert read_head(Path("head")).vocabulary is None


def test_what_no_size_covers_gets_the_largest_one_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tts_orch.vocabulary.size_objective._LARGEST", 55)
    Path("x.jsonl").write_text(
        json.dumps({"prompt": "1", "answer": "abcdefghijklmnopqrstuvwxyzABCDE.,:;?!+-*/=()'{}$#<>%_" * 9}) + "\n"
    )
    assert trim("--min-coverage", "0.999", "--held-out", "0.00001") == 0
    assert "min_coverage: 55 tokens cover" in caplog.text
    assert report()["size"] == 55
