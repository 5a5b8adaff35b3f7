"""The training of draft heads on toys: what is learned, resume, teams, interrupts."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from ray.exceptions import ActorDiedError
from ray.train import ControllerError, WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerGroupStartupFailedError, WorkerHealthCheckFailedError
from torch import Tensor

from tests.head_toys import frozen_toy, new_head, sequence, some_tokens
from tests.toys import VOCABULARY_SIZE, toy_llama
from tts_orch.actors.drafter_training import _begun, _follow, _meaning, _restarted
from tts_orch.drafters.draft_heads import DraftHead
from tts_orch.errors import ConfigError, RunError, TargetError, WorkerLostError
from tts_orch.training.drafters.curves import draw_training
from tts_orch.training.drafters.feature_shards import write_missing
from tts_orch.training.drafters.head_training import Alone, HeadTraining, Report, Team
from tts_orch.training.drafters.settings import DraftHeadSettings
from tts_orch.training.drafters.target_ends import target_ends
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.training.drafters.training_texts import texts_of
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

LOSSES = ["eagle2", "hass", "eagle3"]


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


def toy_training(
    target: FrozenTarget, folder: Path, vocabulary: DraftVocabulary | None = None, **settings: object
) -> HeadTraining:
    """Return a training on 32 random texts, with 8 more to judge by."""
    sequences = [sequence(3, 14, seed, is_held_out=seed >= 32) for seed in range(40)]
    chosen = DraftHeadSettings.model_validate(
        {"batch_tokens": 128, "report_every": 6, "learning_rate": 3e-3, **settings}
    )
    layers = toy_head(chosen.loss).config.feature_layers
    folder = folder / str(layers)
    folder.mkdir(exist_ok=True)
    shards, training, held_out = texts_of([sequences], folder, layers)
    write_missing(shards, target, lambda _: None)
    ends = target_ends(target, vocabulary, torch.float32)
    return HeadTraining(training, held_out, ends, chosen, seed=5)


def toy_head(loss: str, seed: int = 0, vocabulary: DraftVocabulary | None = None) -> DraftHead:
    return new_head(seed, "eagle3" if loss == "eagle3" else "eagle", vocabulary)


@pytest.mark.parametrize(
    ("loss", "vocabulary"), [*((loss, None) for loss in LOSSES), ("eagle2", some_tokens()), ("eagle3", some_tokens())]
)
def test_a_toy_target_is_learned(loss: str, vocabulary: DraftVocabulary | None, tmp_path: Path) -> None:
    settings = {"loss": loss, "epochs": 30, "report_every": 40, "learning_rate": 1e-2}
    training = toy_training(forgetful_target(), tmp_path, vocabulary, **settings)
    head = toy_head(loss, vocabulary=vocabulary)
    reports = training.run(head, tmp_path / "t.pt", Alone(), lambda _: None)
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


@pytest.mark.parametrize("loss", LOSSES)
def test_an_interrupted_training_ends_with_the_same_weights(loss: str, target: FrozenTarget, tmp_path: Path) -> None:
    vocabulary = some_tokens() if loss == "eagle3" else None
    training = toy_training(target, tmp_path, vocabulary, loss=loss, epochs=3)

    def interrupt(reports: Sequence[Report]) -> None:
        if len(reports) == 2:
            raise KeyboardInterrupt

    whole, cut, resumed = (toy_head(loss, seed, vocabulary) for seed in (0, 0, 9))
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


def test_a_state_of_before_draft_vocabularies_is_one_of_all_tokens(target: FrozenTarget, tmp_path: Path) -> None:
    file, training = tmp_path / "state.pt", toy_training(target, tmp_path)
    reports = training.run(toy_head("eagle2", 0), file, Alone(), lambda _: None)
    state = torch.load(file, weights_only=True)
    del state["maps"]
    torch.save(state, file)
    again = training.run(toy_head("eagle2", 9), file, Alone(), lambda _: None)
    assert [report.to_json() for report in again] == [report.to_json() for report in reports]
    with pytest.raises(ConfigError, match="a training for another draft vocabulary"):
        training.run(toy_head("eagle2", 9, some_tokens()), file, Alone(), lambda _: None)


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


@pytest.mark.parametrize("loss", ["hass", "eagle3"])
def test_a_team_trains_the_head_that_one_alone_would(loss: str, target: FrozenTarget, tmp_path: Path) -> None:
    training = toy_training(target, tmp_path, loss=loss, epochs=1, batch_tokens=60)
    barrier, handed = threading.Barrier(2, timeout=60), dict[int, list[Tensor]]()
    heads = [toy_head(loss), toy_head(loss)]

    def run(rank: int) -> None:
        team: Team = Pair(rank, barrier, handed)
        training.run(heads[rank], tmp_path / f"none-{rank}.pt", team, lambda _: None)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    alone = toy_head(loss)
    training.run(alone, tmp_path / "alone.pt", Alone(), lambda _: None)
    for name, weight in alone.state_dict().items():
        torch.testing.assert_close(heads[0].state_dict()[name], weight, rtol=1e-2, atol=1e-3)
        assert torch.equal(heads[0].state_dict()[name], heads[1].state_dict()[name])


def test_all_losses_train_for_the_same_effort(target: FrozenTarget, tmp_path: Path) -> None:
    n_steps = {}
    for loss in LOSSES:
        training = toy_training(target, tmp_path, loss=loss, token_passes=1200)
        n_steps[loss] = training.run(toy_head(loss), tmp_path / f"{loss}.pt", Alone(), lambda _: None)[-1].n_steps
    assert n_steps["eagle2"] == pytest.approx(3 * n_steps["hass"], abs=2)
    assert n_steps["eagle2"] == pytest.approx(5 * n_steps["eagle3"], abs=4)


@pytest.mark.parametrize("loss", ["eagle2", "eagle3"])
def test_a_training_goes_on_with_its_own_vocabulary_alone(loss: str, target: FrozenTarget, tmp_path: Path) -> None:
    some = some_tokens()
    others = DraftVocabulary(some.ids - 1, VOCABULARY_SIZE)
    training = toy_training(target, tmp_path, some, loss=loss, epochs=1)
    training.run(toy_head(loss, vocabulary=some), tmp_path / "t.pt", Alone(), lambda _: None)
    for vocabulary in (others, None):
        again = toy_training(target, tmp_path, vocabulary, loss=loss, epochs=1)
        with pytest.raises(ConfigError, match="another draft vocabulary"):
            again.run(toy_head(loss, vocabulary=vocabulary), tmp_path / "t.pt", Alone(), lambda _: None)


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


_DIED = WorkerHealthCheckFailedError("A worker health check failed.", failure=ActorDiedError())
_NO_ANSWER = WorkerLostError("another process of the training does not answer")
_NO_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")


@pytest.mark.parametrize(
    ("failure", "kind", "said"),
    [
        (
            WorkerGroupError("", {0: AttributeError("no intermediate_size")}),
            RunError,
            "AttributeError: no intermediate",
        ),
        (WorkerGroupError("", {0: _NO_MEMORY}), RunError, "OutOfMemoryError: CUDA out of memory"),
        (WorkerGroupError("", {0: _NO_ANSWER, 1: _NO_MEMORY}), RunError, "CUDA out of memory"),
        (WorkerGroupError("", {0: _DIED, 1: TargetError("no such target")}), TargetError, "no such target"),
        (ControllerError(ValueError("no room")), RunError, "ValueError: no room"),
        (WorkerGroupError("", {0: _NO_ANSWER, 1: _DIED}), WorkerLostError, "does not answer"),
        (WorkerGroupError("", {1: _DIED}), WorkerLostError, "worker lost: The actor died"),
        (ControllerError(WorkerGroupStartupFailedError("died")), WorkerLostError, "as it began: died"),
    ],
)
def test_a_training_begins_again_only_where_a_process_was_lost(
    failure: Exception, kind: type[Exception], said: str
) -> None:
    n_times = 0

    def train_once() -> None:
        nonlocal n_times
        n_times += 1
        raise _meaning(failure)

    with pytest.raises(kind, match=said) as caught:
        _restarted(train_once)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    assert n_times == (3 if kind is WorkerLostError else 1)


def test_a_training_that_diverges_says_so(target: FrozenTarget, tmp_path: Path) -> None:
    training = toy_training(target, tmp_path, learning_rate=1e30, epochs=1)
    with pytest.raises(RunError, match="smaller learning_rate"):
        training.run(new_head(), tmp_path / "t.pt", Alone(), lambda _: None)
