"""Training of draft heads on toys: data, features, batches, the loop and its checkpoints."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.toys import VOCABULARY_SIZE, save_toy, toy_gemma2, toy_llama, toy_tokenizer
from tts_orch.actors.drafter_training import _begun, _follow
from tts_orch.cli import execute
from tts_orch.cli.drafter_texts import sequences_of
from tts_orch.config import load_config
from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import ConfigError, ProblemError, RunError, TargetError
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.averaging import averaged_head
from tts_orch.training.drafters.batches import assemble, batches_by_length, plan_steps
from tts_orch.training.drafters.curves import draw_training
from tts_orch.training.drafters.feature_shards import FeatureShard, write_missing
from tts_orch.training.drafters.given_answers import Encoding, given_sequences, read_given_answers
from tts_orch.training.drafters.head_training import Alone, HeadTraining, Report, Team
from tts_orch.training.drafters.settings import DrafterTrainingConfig, DraftHeadSettings
from tts_orch.training.drafters.target_laws import FrozenTarget, TargetEnds
from tts_orch.training.drafters.training_sequences import TrainingSequence, choose_sequences, n_training_tokens
from tts_orch.training.drafters.training_texts import TrainingTexts, texts_of


def sequence(n_prompt: int, n_answer: int, seed: int = 0, is_held_out: bool = False) -> TrainingSequence:
    tokens = np.random.default_rng(seed).integers(3, VOCABULARY_SIZE, n_prompt + n_answer).astype(np.int32)
    return TrainingSequence(tokens, n_prompt, len(tokens), is_held_out)


# ---- data

sizes = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 9), st.booleans()), min_size=1, max_size=20)


@given(sizes=sizes, limit=st.none() | st.integers(1, 60), group=st.integers(1, 5))
def test_a_limit_is_met_to_the_token(sizes: list[tuple[int, int, bool]], limit: int | None, group: int) -> None:
    everything = [sequence(*size[:2], is_held_out=size[2]) for size in sizes]
    chosen = choose_sequences(everything, limit, 2, group)
    there_are = n_training_tokens(everything)
    assert n_training_tokens(chosen) == (there_are if limit is None else min(limit, there_are))
    assert [one.token_ids for one in chosen] == [one.token_ids for one in everything[: len(chosen)]]
    assert len(chosen) == len(everything) or len(chosen) % group == 0
    assert sum(one.is_held_out and one.n_laws > 0 for one in chosen) <= 2


def test_a_law_is_learned_for_every_answer_token() -> None:
    assert sequence(4, 3).n_laws == 3
    assert sequence(2, 3).n_laws == 3
    assert sequence(1, 3).n_laws == 2  # no head can draft the second token of a text


def test_given_answers_end_with_the_end_of_text(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "1", "prompt": "a b", "solution": "the end", "other": "x"}\n')
    tokenizer = toy_tokenizer()
    (given_one,) = read_given_answers(file, "solution")
    (read,) = given_sequences([given_one], Encoding(tokenizer, "raw", 64, 0.1))
    assert tokenizer.decode(read.token_ids[read.n_prompt :]) == "the end<eos>"
    with pytest.raises(ProblemError, match=r"a\.jsonl:1: no text in `answer`; .* among other, solution"):
        read_given_answers(file, "answer")
    (cut,) = given_sequences([given_one], Encoding(tokenizer, "raw", read.n_prompt + 2, 0.1))
    assert cut.n_laws == 2


def test_recipes_of_one_size_have_equal_data_and_effort() -> None:
    recipes = {
        file.stem: DrafterTrainingConfig.model_validate({"out": "x", "engine": {"target": "x"}, **load_config(file)})
        for file in (Path(__file__).parents[2] / "recipes/drafters").glob("*.yaml")
    }
    sizes = {name: sum(part.tokens or 0 for part in recipe.data) for name, recipe in recipes.items()}
    efforts = {name: recipe.head.token_passes for name, recipe in recipes.items()}
    for of in (sizes, efforts):
        assert of["math"] == of["chat"] == of["code"] == of["mixed"] == of["double"] / 2
    shares = {part.file: part.tokens for part in recipes["double"].data}
    assert shares == {part.file: part.tokens for name in ("math", "chat") for part in recipes[name].data}
    assert shares == {part.file: 2 * (part.tokens or 0) for part in recipes["mixed"].data}


class AnsweringOrchestrator:
    """Stands in for an `Orchestrator`: answers with the prompt's number, and tells who started it and what was asked."""

    started: ClassVar[list[AnsweringOrchestrator]]

    def __init__(self, **_settings: object) -> None:
        self.started.append(self)
        self.asked: list[str] = []
        self.is_closed = False

    def __enter__(self) -> AnsweringOrchestrator:
        return self

    def __exit__(self, *_error: object) -> None:
        self.is_closed = True

    def search_many(self, problems: Sequence[Problem], _policy: object, **_options: object) -> Iterator[SearchResult]:
        for problem in reversed(problems):
            self.asked.append(problem.id)
            answer = Candidate(problem.id, (0,), 0, (5, int(problem.id)), "", FinishReason.EOS)
            yield SearchResult(problem.id, "answer", None, [answer])


@pytest.mark.parametrize("only_held_out", [False, True])
def test_one_orchestrator_answers_the_prompts_of_a_file_as_they_are_asked_for(
    only_held_out: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tts_orch.orchestrator.Orchestrator", AnsweringOrchestrator)
    monkeypatch.setattr(AnsweringOrchestrator, "started", [], raising=False)
    (tmp_path / "p.jsonl").write_text("".join(json.dumps({"id": str(i), "prompt": f"{i}?"}) + "\n" for i in range(300)))
    config = DrafterTrainingConfig.model_validate(
        {
            "data": [{"file": "p.jsonl"}],
            "data_folder": tmp_path,
            "out": tmp_path / "out",
            "answers": "target",
            "template": "raw",
            "held_out": 0.1,
            "engine": {"target": "toy"},
        }
    )
    base = BaseFiles(tmp_path, toy_tokenizer(), "weights", 16, 64, torch.device("cpu"), torch.float32)
    with closing(sequences_of(config, config.data[0], base, only_held_out=only_held_out)) as sequences:
        read = list(islice(sequences, 100))
    (orchestrator,) = AnsweringOrchestrator.started
    assert orchestrator.is_closed
    assert len(orchestrator.asked) == (len(read) if only_held_out else 128)
    assert 10 < len(read) < 60 if only_held_out else len(read) == 100
    assert all(one.is_held_out for one in read) is only_held_out
    assert [str(one.token_ids[-1]) for one in read[:64]] == orchestrator.asked[:64][::-1]


# ---- features


@pytest.fixture(scope="module")
def target() -> FrozenTarget:
    return FrozenTarget(toy_llama(torch.float32), VOCABULARY_SIZE, "toy")


def test_features_and_laws_are_those_of_the_target_alone(target: FrozenTarget, tmp_path: Path) -> None:
    sequences = [sequence(2 + i, 3 + 2 * i % 5, seed=i) for i in range(10)]
    sequences[3] = sequences[3].cut_to(2)
    shard = FeatureShard(tmp_path, sequences)
    done: list[int] = []
    write_missing([shard], target, done.append)
    assert done == [1]
    assert shard.exists
    stock = toy_llama(torch.float32)
    for number, one in enumerate(sequences):
        read = shard.read(number)
        output = stock(torch.from_numpy(one.token_ids[: one.length - 1]).long()[None], output_hidden_states=True)
        torch.testing.assert_close(read.features, output.hidden_states[-1][0], rtol=2e-3, atol=2e-3)
        probs = torch.softmax(output.logits[0, one.first_law :], dim=-1)
        torch.testing.assert_close(read.laws.top_probs, probs.topk(10).values, rtol=1e-4, atol=1e-5)
        expected = probs @ stock.get_output_embeddings().weight
        torch.testing.assert_close(read.laws.expected, expected, rtol=2e-3, atol=2e-3)
        assert len(read.laws.top_ids) == one.n_laws


def test_targets_with_soft_caps_are_refused() -> None:
    model = toy_gemma2(torch.float32)
    model.config.final_logit_softcapping = 0.5
    with pytest.raises(TargetError, match="no linear map"):
        FrozenTarget(model, VOCABULARY_SIZE, "gemma")


# ---- batches


@given(st.lists(st.integers(3, 40), min_size=1, max_size=30), st.integers(1, 100), st.integers(0, 5))
def test_batches_have_every_text_once_and_their_size(lengths: list[int], batch_tokens: int, seed: int) -> None:
    batches = batches_by_length(lengths, batch_tokens, seed)
    assert sorted(text for batch in batches for text in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[text] for text in batch) <= batch_tokens


def test_steps_read_as_many_tokens_as_are_asked_for() -> None:
    lengths, n_laws = [9, 12, 30, 7], [4, 5, 20, 3]
    steps = plan_steps(lengths, n_laws, 32, n_tokens=80, seed=0)
    assert 80 <= sum(step.n_laws for step in steps) < 80 + steps[-1].n_laws
    assert steps[-1].epoch == 2
    assert plan_steps(lengths, n_laws, 32, n_tokens=40, seed=0) == steps[: len(plan_steps(lengths, n_laws, 32, 40, 0))]


def test_a_batch_pairs_features_with_the_next_token(target: FrozenTarget, tmp_path: Path) -> None:
    sequences = [sequence(3, 4, seed=1), sequence(1, 6, seed=2), sequence(5, 9, seed=3)]
    shard = FeatureShard(tmp_path, sequences)
    shard.write(target)
    learned = [shard.read(number) for number in range(3)]
    batch = assemble(learned, torch.device("cpu"))
    assert batch.token_ids.shape == (3, 12)
    rows = iter(range(len(batch.rows)))
    for number, one in enumerate(learned):
        for position in range(one.first_law, len(one.token_ids) - 1):
            row = next(rows)
            text, place = divmod(int(batch.rows[row]), 12)
            assert (text, place) == (number, position - 1)
            assert batch.token_ids[text, place] == one.token_ids[position]
            assert torch.equal(batch.features[text, place], one.features[position - 1])
            assert torch.equal(batch.targets[row], one.features[position])
    assert next(rows, None) is None


# ---- training


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


def new_head(seed: int = 0) -> EagleHead:
    torch.manual_seed(seed)
    return EagleHead(HeadConfig.for_target(toy_llama().config))


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


# ---- averages


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


# ---- mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "data: missing"),
        (["--data", "nowhere.jsonl"], "nowhere.jsonl: No such file"),
        (["--data", "x.jsonl:many"], "'many' is no number of tokens"),
        (["--data", "x.jsonl", "--answer-field", "text"], "no text in `text`"),
        (["--data", "x.jsonl:500"], "x.jsonl has 0 answer tokens to learn from, not 500"),
        (["--data", "x.jsonl", "--held-out", "0.00001"], "held_out: no text is left"),
        (["--data", "x.jsonl", "--loss", "eagle3"], "'eagle3' is not one of"),
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


def test_missing_plots_are_noticed_before_a_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    arguments = ["--data", "x.jsonl", "--target", "toy", "--out", str(tmp_path / "out")]
    assert execute(["drafter", "train", *arguments]) == 2
    assert "plots need matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_texts_without_answers_to_learn_are_left_out(tmp_path: Path) -> None:
    sequences = [sequence(4, 3), sequence(4, 3).cut_to(0), sequence(4, 3, is_held_out=True)]
    _, training, held_out = texts_of([sequences], tmp_path)
    assert (training.n_laws, held_out.n_laws) == ([3], [3])
    assert TrainingTexts([]).lengths == []
