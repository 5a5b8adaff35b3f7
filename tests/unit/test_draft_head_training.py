"""The training of draft heads on toys: what is learned, resume, teams, interrupts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.head_toys import frozen_toy, new_head, sequence
from tests.toys import VOCABULARY_SIZE, toy_llama
from tts_orch.actors.drafter_training import _begun, _follow
from tts_orch.errors import RunError
from tts_orch.training.drafters.curves import draw_training
from tts_orch.training.drafters.feature_shards import write_missing
from tts_orch.training.drafters.head_training import Alone, HeadTraining, Report, Team
from tts_orch.training.drafters.settings import DraftHeadSettings
from tts_orch.training.drafters.target_laws import FrozenTarget, TargetEnds
from tts_orch.training.drafters.training_texts import texts_of


@pytest.fixture(scope="module")
def target() -> FrozenTarget:
    return frozen_toy()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads gain nothing on toys."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def toy_training(target: FrozenTarget, folder: Path, **settings: object) -> HeadTraining:
    """Return a training on 32 random texts, with 8 more to judge by."""
    sequences = [sequence(3, 14, seed, is_held_out=seed >= 32) for seed in range(40)]
    shards, training, held_out = texts_of([sequences], folder)
    write_missing(shards, target, lambda _: None)
    chosen = {"batch_tokens": 128, "report_every": 6, "learning_rate": 3e-3, **settings}
    ends = TargetEnds(target.embedding, target.output)
    return HeadTraining(training, held_out, ends, DraftHeadSettings.model_validate(chosen), seed=5)


@pytest.mark.parametrize("loss", ["eagle2", "hass"])
def test_a_toy_target_is_learned(loss: str, tmp_path: Path) -> None:
    training = toy_training(forgetful_target(), tmp_path, loss=loss, epochs=30, report_every=40, learning_rate=1e-2)
    reports = training.run(new_head(), tmp_path / "t.pt", Alone(), lambda _: None)
    assert reports[-1].loss < 0.9 * reports[0].loss
    tops = torch.cat([training.held_out.read(i).laws.top_ids[:, 0] for i in range(8)])
    most_frequent = float((tops == tops.mode().values).float().mean())
    accuracy = reports[-1].accuracy
    assert accuracy.acceptance[0] > 2 * most_frequent
    assert accuracy.tau == pytest.approx(1 + sum(accuracy.acceptance), abs=1e-3)
    draw_training(reports, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 1000


def forgetful_target() -> FrozenTarget:
    """Return a toy whose features depend on the last token alone, which a head can learn from few texts."""
    model = toy_llama(torch.float32)
    for name, weight in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            weight.data.zero_()
    return FrozenTarget(model, VOCABULARY_SIZE, "toy")


@pytest.mark.parametrize("loss", ["eagle2", "hass"])
def test_an_interrupted_training_ends_with_the_same_weights(loss: str, target: FrozenTarget, tmp_path: Path) -> None:
    training = toy_training(target, tmp_path, loss=loss, epochs=3)

    def interrupt(reports: Sequence[Report]) -> None:
        if len(reports) == 2:
            raise KeyboardInterrupt

    whole, cut, resumed = new_head(), new_head(), new_head(seed=9)
    all_reports = training.run(whole, tmp_path / "whole.pt", Alone(), lambda _: None)
    assert len(all_reports) > 2
    with pytest.raises(KeyboardInterrupt):
        training.run(cut, tmp_path / "cut.pt", Alone(), interrupt)
    told: list[int] = []
    reports = training.run(resumed, tmp_path / "cut.pt", Alone(), lambda reports: told.append(len(reports)))
    assert told == list(range(2, len(all_reports) + 1))  # what was cut off may not have been written down
    assert [report.to_json() for report in reports] == [report.to_json() for report in all_reports]
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    assert not torch.equal(cut.fc.weight, whole.fc.weight)


class Pair:
    """One of two threads that train together."""

    size = 2

    def __init__(self, rank: int, barrier: threading.Barrier, handed: dict[int, list[Tensor]]) -> None:
        self.rank, self._barrier, self._handed = rank, barrier, handed

    def add_up(self, tensors: Sequence[Tensor]) -> None:
        self._handed[self.rank] = [tensor.clone() for tensor in tensors]
        self._barrier.wait()
        for tensor, first, second in zip(tensors, self._handed[0], self._handed[1], strict=True):
            tensor.copy_(first + second)
        self._barrier.wait()

    def wait(self) -> None:
        self._barrier.wait()


def test_a_team_trains_the_head_that_one_alone_would(target: FrozenTarget, tmp_path: Path) -> None:
    training = toy_training(target, tmp_path, loss="hass", epochs=1, batch_tokens=60)
    barrier, handed = threading.Barrier(2, timeout=60), dict[int, list[Tensor]]()
    heads = [new_head(), new_head()]

    def run(rank: int) -> None:
        team: Team = Pair(rank, barrier, handed)
        training.run(heads[rank], tmp_path / f"none-{rank}.pt", team, lambda _: None)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = new_head()
    training.run(alone, tmp_path / "alone.pt", Alone(), lambda _: None)
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(heads[0].state_dict()[name], weight, rtol=1e-2, atol=1e-3)
        assert torch.equal(heads[0].state_dict()[name], heads[1].state_dict()[name])


def test_hass_and_eagle2_train_for_the_same_effort(target: FrozenTarget, tmp_path: Path) -> None:
    n_steps = {}
    for loss in ("eagle2", "hass"):
        training = toy_training(target, tmp_path, loss=loss, token_passes=1200)
        n_steps[loss] = training.run(new_head(), tmp_path / f"{loss}.pt", Alone(), lambda _: None)[-1].n_steps
    assert n_steps["eagle2"] == pytest.approx(3 * n_steps["hass"], abs=2)


def test_who_interrupts_a_training_does_not_wait_for_its_end(tmp_path: Path) -> None:
    progress, end = tmp_path / "progress.json", threading.Event()
    progress.write_text('["training", 1, 2]')

    def interrupt(*_told: object) -> None:
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            _follow(_begun(end.wait), progress, interrupt)
        assert not end.is_set()
    finally:
        end.set()


def test_what_a_training_raises_is_raised_to_who_follows_it(tmp_path: Path) -> None:
    def fail() -> None:
        raise RunError("no more")

    with pytest.raises(RunError, match="no more"):
        _follow(_begun(fail), tmp_path / "progress.json", lambda *_: None)


def test_a_training_that_diverges_says_so(target: FrozenTarget, tmp_path: Path) -> None:
    training = toy_training(target, tmp_path, learning_rate=1e30, epochs=1)
    with pytest.raises(RunError, match="smaller learning_rate"):
        training.run(new_head(), tmp_path / "t.pt", Alone(), lambda _: None)
