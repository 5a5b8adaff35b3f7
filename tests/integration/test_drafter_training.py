"""`tts-orch drafter train` over Ray Train, on a toy: texts in, a head that loads out, in one process or two."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.toys import save_toy
from tts_orch.cli import drafter_training, execute
from tts_orch.config import EngineConfig
from tts_orch.drafters.checkpoint import load_network
from tts_orch.drafters.target_facts import target_facts
from tts_orch.engine.target import load_target
from tts_orch.training.drafters.member import OnProgress

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes/drafters/tiny.yaml"

pytestmark = [
    pytest.mark.usefixtures("ray_session"),
    pytest.mark.timeout(600),
]  # Ray Train starts slowly on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a toy target and texts."""
    folder = tmp_path_factory.mktemp("drafters")
    save_toy(folder / "toy")
    words = ["the", "end", "1", "10", "+", "box", "in", "an"]
    draw = random.Random(0)
    lines = [
        {"id": str(i), "prompt": f"{i}? ", "answer": " ".join(draw.choices(words, k=8)), "domain": "math"}
        for i in range(60)
    ]
    (folder / "texts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def train(folder: Path, out: str, *options: str) -> dict[str, torch.Tensor]:
    arguments = ["--config", str(RECIPE), "--data-folder", str(folder), "--target", str(folder / "toy")]
    assert execute(["drafter", "train", *arguments, "--device", "cpu", "--out", str(folder / out), *options]) == 0
    return load_file(folder / out / "model.safetensors")


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a head that one process trained, in the folder `alone`."""
    return train(folder, "alone", "--loss", "hass")


@pytest.mark.usefixtures("alone")
def test_a_trained_head_drafts_for_its_target(folder: Path) -> None:
    trained_by = json.loads((folder / "alone/config.json").read_text())["trained_by"]
    assert trained_by["data"] == [{"file": "texts.jsonl", "tokens": 300, "texts": pytest.approx(30, abs=25)}]
    assert trained_by["held_out"]["tau"] >= 1
    reports = [json.loads(line) for line in (folder / "alone/training.jsonl").read_text().splitlines()]
    assert reports[-1]["step"] == reports[-1]["steps"]
    assert (folder / "alone/training.png").stat().st_size > 1000
    target = load_target(EngineConfig(target=str(folder / "toy"), device="cpu"))
    assert load_network(folder / "alone", target_facts(target)).feature_layers == (-1,)


@pytest.mark.usefixtures("alone")
def test_heads_are_compared_on_held_out_texts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config", str(RECIPE), "--data-folder", str(folder), "--target", str(folder / "toy")]
    assert execute(["drafter", "eval", str(folder / "alone"), *arguments, "--device", "cpu"]) == 0
    _, titles, _, first, *_ = capsys.readouterr().out.splitlines()
    assert "1 right" in titles
    tau = float(first.split("│")[-2])
    assert 1 <= tau <= 6


def test_processes_that_share_the_steps_train_the_same_head(folder: Path, alone: dict[str, torch.Tensor]) -> None:
    together = train(folder, "together", "--loss", "hass", "--workers", "2", "--cache", str(folder / "shared"))
    for name, weight in alone.items():
        torch.testing.assert_close(together[name], weight, rtol=1e-2, atol=1e-3)


@pytest.mark.usefixtures("alone")
def test_a_training_that_diverges_ends_at_once_and_features_are_computed_once(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    cache = folder / "alone/cache"
    written = {file: file.stat().st_mtime_ns for file in cache.glob("features-*/*")}
    assert written
    arguments = ["--config", str(RECIPE), "--data-folder", str(folder), "--target", str(folder / "toy")]
    options = ["--device", "cpu", "--out", str(folder / "diverged"), "--cache", str(cache), "--learning-rate", "1e30"]
    assert execute(["drafter", "train", *arguments, *options]) == 1
    assert "the training diverged; give a smaller learning_rate" in capfd.readouterr().err.splitlines()[-1]
    assert "goes on from the last checkpoint" not in caplog.text
    assert {file: file.stat().st_mtime_ns for file in cache.glob("features-*/*")} == written


def test_the_target_answers_prompts_itself_and_progress_shows_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, int, int]] = []

    @contextmanager
    def bars(console: object) -> Iterator[OnProgress]:
        yield lambda *progress: told.append(progress)

    monkeypatch.setattr(drafter_training, "progress_bars", bars)
    train(folder, "answered", "--answers", "target", "--max-new-tokens", "12", "--threads", "1")
    trained_by = json.loads((folder / "answered/config.json").read_text())["trained_by"]
    assert trained_by["answers"] == "target"
    assert trained_by["data"][0]["tokens"] == 300
    n_answered = [n for part, n, n_all in told if part == "answers, texts.jsonl" and n_all == 60]
    assert n_answered == list(range(1, 61))
    (answers,) = (folder / "answered/cache").glob("answers-*")
    assert any(answers.iterdir())
