"""`tts-orch drafter`: averages, and mistakes in one line."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import OPTConfig, OPTForCausalLM

from tests.head_toys import new_head, some_tokens
from tests.toys import VOCABULARY_SIZE, save_toy
from tts_orch.cli import execute
from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.errors import ConfigError
from tts_orch.training.drafters.averaging import averaged_head
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary


def test_an_average_has_the_mean_of_the_weights(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heads = [new_head(seed) for seed in range(2)]
    for name, head in zip("ab", heads, strict=True):
        (tmp_path / name).mkdir()
        save_head(tmp_path / name, head)
    places = [str(tmp_path / name) for name in "ab"]
    assert execute(["drafter", "average", *places, "--out", str(tmp_path / "mean")]) == 0
    mean = read_head(tmp_path / "mean").state_dict()
    for name, weight in mean.items():
        torch.testing.assert_close(weight, (heads[0].state_dict()[name] + heads[1].state_dict()[name]) / 2)
    heads[1].config = replace(heads[1].config, target_weights_id="other")
    save_head(tmp_path / "b", heads[1])
    with pytest.raises(ConfigError, match="another target"):
        averaged_head([tmp_path / "a", tmp_path / "b"])


def test_an_average_never_takes_the_place_of_a_trained_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate("abc"):
        Path(name).mkdir()
        save_head(Path(name), new_head(seed))
    for arguments, message in (
        (["a", "b", "--out", "./a/"], "--out: a is the folder of one of the heads; give another one"),
        (["a", "b", "--out", "c"], "--out: c has a drafter in it that is no average; give another folder"),
        (["a", "--out", "mean"], "heads: a alone has no average"),
        (["a", "./a", "--out", "mean"], "heads: a alone has no average"),
    ):
        assert execute(["drafter", "average", *arguments]) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert message in line
    assert not Path("mean").exists()
    for seed, name in enumerate("ac"):
        assert torch.equal(read_head(Path(name)).fc.weight, new_head(2 * seed).fc.weight)
    for pair in (["a", "b"], ["a", "c"]):  # averages may be made anew
        assert execute(["drafter", "average", *pair, "--out", "mean"]) == 0


@pytest.mark.parametrize("architecture", ["eagle", "eagle3"])
def test_heads_of_one_architecture_and_vocabulary_are_averaged(architecture: str, tmp_path: Path) -> None:
    some = some_tokens()
    others = DraftVocabulary(some.ids - 1, some.vocab_size)
    heads = {
        "one": new_head(0, architecture, some),
        "two": new_head(1, architecture, some),
        "other tokens": new_head(0, architecture, others),
        "all tokens": new_head(0, architecture),
        "other architecture": new_head(0, "eagle3" if architecture == "eagle" else "eagle", some),
    }
    for name, head in heads.items():
        (tmp_path / name).mkdir()
        save_head(tmp_path / name, head)
    mean = averaged_head([tmp_path / "one", tmp_path / "two"])
    assert mean.vocabulary == some
    assert mean.config.architecture == architecture
    for name, what in (("other tokens", "vocabulary"), ("all tokens", "shape"), ("other architecture", "shape")):
        with pytest.raises(ConfigError, match=rf"{name}: a head (of|with) another (draft )?{what}"):
            averaged_head([tmp_path / "one", tmp_path / name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "data: missing"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--data", "x.jsonl:many"], "'many' is no number of tokens"),
        (["--data", "x.jsonl", "--answer-field", "text"], "no text in `text`"),
        (["--data", "x.jsonl:500"], "x.jsonl has 0 answer tokens to learn from, not 500"),
        (["--data", "x.jsonl", "--held-out", "0.00001"], "held_out: no text is left"),
        (["--data", "x.jsonl", "--loss", "eagle4"], "'eagle4' is not one of"),
        (["--data", "x.jsonl", "--loss", "eagle3", "--noise", "0.1"], "noise: it means nothing to eagle3"),
        (["--data", "x.jsonl", "--vocabulary", "v.safetensors"], "v.safetensors is no file; make one with `tts-orch"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    save_toy(tmp_path / "toy")
    Path("x.jsonl").write_text(json.dumps({"id": "a", "prompt": "1?", "answer": "a"}) + "\n")
    held_out = [] if "--held-out" in arguments or "500" not in str(arguments) else ["--held-out", "0.999999"]
    arguments = [*arguments, *held_out, "--target", "toy", "--out", "out"]
    capsys.readouterr()  # the toy's own bars
    assert execute(["drafter", "train", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy", "x.jsonl"]


def test_a_mistake_leaves_what_was_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "out/cache/answers-1"
    kept.mkdir(parents=True)
    save_toy(tmp_path / "toy")
    arguments = ["--data", "nowhere.jsonl", "--target", str(tmp_path / "toy"), "--out", str(tmp_path / "out")]
    assert execute(["drafter", "train", *arguments, "--cache", str(tmp_path / "shared")]) == 2
    assert "nowhere.jsonl: No such file" in capsys.readouterr().err
    assert kept.is_dir()
    assert not (tmp_path / "shared").exists()


def test_a_target_that_can_have_no_head_is_refused_before_the_texts_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = {"hidden_size": 32, "word_embed_proj_dim": 16, "ffn_dim": 48, "num_attention_heads": 4}
    config = OPTConfig(vocab_size=VOCABULARY_SIZE, max_position_embeddings=64, num_hidden_layers=2, **shape)
    save_toy(tmp_path / "opt", OPTForCausalLM(config))
    capsys.readouterr()
    arguments = ["--data", "nowhere.jsonl", "--target", str(tmp_path / "opt"), "--out", str(tmp_path / "out")]
    assert execute(["drafter", "train", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "opt: its embeddings are 16 wide, its hidden states 32" in line


def test_missing_plots_are_noticed_before_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["--data", "x.jsonl", "--target", "toy", "--out", str(tmp_path / "out")]
    assert execute(["drafter", "train", *arguments]) == 2
    assert "plots need matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
