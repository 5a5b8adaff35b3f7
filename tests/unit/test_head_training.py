"""Hidden states, training and verdicts of a process reward head, on toy models."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForCausalLM

from tests.toys import TOY_MODELS, save_toy, toy_tokenizer
from tts_orch.config import EngineConfig
from tts_orch.errors import ConfigError, ProblemError
from tts_orch.records import Problem
from tts_orch.rewards.cut_model import cut_to_layer
from tts_orch.rewards.process_head import HeadConfig, ProcessHead, read_head, write_head
from tts_orch.rewards.segments import Segment
from tts_orch.rewards.step_encoding import encode_steps
from tts_orch.tasks.prompts import render
from tts_orch.training.base_model import BaseFiles, read_base_files
from tts_orch.training.given_labels import read_labelled_solutions
from tts_orch.training.head_training import train_head
from tts_orch.training.labelled_data import LabelledData, given_data
from tts_orch.training.labelled_solutions import LabelledSolution
from tts_orch.training.process_rewards import train_process_head
from tts_orch.training.settings import HeadSettings, RewardTrainingConfig
from tts_orch.training.step_features import LabelledProblem, StepData
from tts_orch.training.step_verdicts import area_under_curve, judge_scores

DATA = Path(__file__).parents[3] / "shared/data"


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


def planted_steps(n: int = 200, hidden_size: int = 6) -> StepData:
    """Return steps that are good where the first feature is positive."""
    generator = torch.Generator().manual_seed(0)
    features = 3 + 2 * torch.randn(n, hidden_size, generator=generator)
    return StepData(features, (features[:, 0] > 3).float(), torch.arange(n) // 4, torch.arange(n) % 4 == 3)


# ---- encoding


def test_tokens_of_a_step_do_not_depend_on_what_follows() -> None:
    tokenizer = toy_tokenizer()
    steps = ["a + 1.", "the end", "x\n1"]
    whole = encode_steps(tokenizer, steps, "\n\n")
    for n in range(4):
        part = encode_steps(tokenizer, steps[:n], "\n\n")
        assert part.token_ids.tolist() == whole.token_ids.tolist()[: len(part.token_ids)]
        assert part.ends == whole.ends[:n]
    assert [tokenizer.decode([whole.token_ids[end]]) for end in whole.ends] == ["\n\n"] * 3


def test_white_space_and_mark_at_the_end_of_a_step_do_not_count() -> None:
    encode = partial(encode_steps, toy_tokenizer(), mark="\n\n")
    bare = encode(["a", "b"]).token_ids.tolist()
    assert encode(["a\n\n", "b \n"]).token_ids.tolist() == bare
    assert encode([" a", "b"]).token_ids.tolist() != bare


# ---- hidden states


@pytest.mark.parametrize("layer", [0, 1, -1, -2])
@pytest.mark.parametrize("name", list(TOY_MODELS))
def test_a_cut_model_ends_with_the_hidden_states_of_its_layer(name: str, layer: int, tmp_path: Path) -> None:
    TOY_MODELS[name](torch.float32).save_pretrained(tmp_path)
    token_ids = torch.arange(5, 25)[None]
    whole = AutoModelForCausalLM.from_pretrained(tmp_path)(token_ids, output_hidden_states=True)
    cut = cut_to_layer(AutoModel.from_pretrained(tmp_path), layer)
    torch.testing.assert_close(cut(token_ids).last_hidden_state, whole.hidden_states[layer], rtol=1e-4, atol=1e-5)


def test_a_layer_that_is_not_there_is_refused(toy: Path) -> None:
    with pytest.raises(ConfigError, match=r"hidden states -3 to 2, not 3"):
        cut_to_layer(AutoModel.from_pretrained(toy), 3)


def test_hidden_states_behind_a_shared_prompt_are_those_of_the_whole_text(toy: Path) -> None:
    base = read_base_files(EngineConfig(target=str(toy), device="cpu"))
    prompt = Segment(tuple(range(5, 17)), is_read=False)
    solutions = [
        [prompt, *(Segment(tuple(range(20 + n, 20 + 2 * n))) for n in lengths)] for lengths in ((3, 2), (9,), (3,))
    ]
    found = base.load(-2, "hidden_state").features([*solutions, [prompt]])
    assert found.pop().shape == (0, 32)
    stock = AutoModelForCausalLM.from_pretrained(toy)
    for hidden, segments in zip(found, solutions, strict=True):
        token_ids = torch.tensor([[i for segment in segments for i in segment.token_ids]])
        ends = list(accumulate(len(segment.token_ids) for segment in segments))[1:]
        states = stock(token_ids, output_hidden_states=True).hidden_states[-2][0, [end - 1 for end in ends]]
        torch.testing.assert_close(hidden, states, rtol=1e-4, atol=1e-5)


def test_likelihoods_stand_behind_the_hidden_states(toy: Path) -> None:
    base = read_base_files(EngineConfig(target=str(toy), device="cpu"))
    solution = [Segment(tuple(range(5, 17)), is_read=False), Segment((20, 21, 22))]
    (states,) = base.load(-2, "hidden_state").features([solution])
    (more,) = base.load(-2, "both").features([solution])
    torch.testing.assert_close(more[:, :32], states, rtol=1e-4, atol=1e-5)
    mean, least, total, least_so_far = more[0, 32:].tolist()
    assert total < least <= mean < 0
    assert least_so_far == least  # it is the first step
    (alone,) = base.load(-2, "likelihood").features([solution])
    torch.testing.assert_close(alone, more[:, 32:], rtol=1e-4, atol=1e-5)


# ---- training


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_planted_rule_is_learned(kind: Any, tmp_path: Path) -> None:
    data = planted_steps()
    settings = HeadSettings(kind=kind, width=8, epochs=40, learning_rate=0.03, weight_decay=0.0)
    losses: list[float] = []
    head = train_head(data, settings, 0, tmp_path / "head.pt", lambda _, loss: losses.append(loss))
    assert losses[-1] < 0.3 < losses[0]
    verdicts = judge_scores(torch.sigmoid(head(data.features)).numpy(), data.labels.numpy(), data.problems.numpy())
    assert (verdicts.accuracy or 0) > 0.95
    assert (verdicts.auc or 0) > 0.99


def test_soft_labels_are_met_on_average(tmp_path: Path) -> None:
    data = planted_steps()._replace(labels=torch.full((200,), 0.3))
    head = train_head(data, HeadSettings(epochs=200, learning_rate=0.05), 0, tmp_path / "head.pt", lambda *_: None)
    assert abs(float(torch.sigmoid(head(data.features)).mean()) - 0.3) < 0.01


@pytest.mark.parametrize("stop", [1, 4])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_an_interrupted_training_ends_with_the_same_weights(kind: Any, stop: int, tmp_path: Path) -> None:
    data, settings = planted_steps(), HeadSettings(kind=kind, width=5, epochs=6, batch_size=32)

    def interrupt(n_epochs: int, _: float) -> None:
        if n_epochs == stop:
            raise KeyboardInterrupt

    whole = train_head(data, settings, 7, tmp_path / "whole.pt", lambda *_: None)
    with pytest.raises(KeyboardInterrupt):
        train_head(data, settings, 7, tmp_path / "cut.pt", interrupt)
    epochs: list[int] = []
    resumed = train_head(data, settings, 7, tmp_path / "cut.pt", lambda n, _: epochs.append(n))
    assert epochs == list(range(stop + 1, 7))
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    other = train_head(data, settings, 8, tmp_path / "other.pt", lambda *_: None)
    assert not torch.equal(other.layers[-1].weight, whole.layers[-1].weight)


# ---- the whole way


def toy_data(n_problems: int = 40) -> LabelledData:
    """Return problems with two solutions each: one counts, and is good, the other does not."""
    problems = [Problem(f"p{i}", f"{i} + {i + 1} =") for i in range(n_problems)]
    good, bad = ("1 + 1", "= 2"), ("the an", "in the")
    solutions = [[LabelledSolution(p.id, good, (1.0, 1.0)), LabelledSolution(p.id, bad, (0.0, None))] for p in problems]
    pairs = [LabelledProblem(p, s) for p, s in zip(problems, solutions, strict=True)]
    return LabelledData(pairs, [i % 4 == 0 for i in range(n_problems)], {"labels": "by hand"})


def training_config(toy: Path, out: Path, **head: Any) -> RewardTrainingConfig:
    return RewardTrainingConfig(
        problems=Path("unused"),
        out=out,
        template="raw",
        engine=EngineConfig(target=str(toy), device="cpu"),
        head=HeadSettings(**{"epochs": 20, "learning_rate": 0.02, **head}),
    )


def test_a_trained_head_is_read_back_and_scores_as_it_was_judged(toy: Path, tmp_path: Path) -> None:
    config, data = training_config(toy, tmp_path, layer=1, epochs=60, learning_rate=0.05), toy_data()
    base = read_base_files(config.engine)
    trained = train_process_head(config, data, base, tmp_path, lambda *_: None)
    assert (trained.held_out.steps, trained.held_out_last.steps) == (30, 10)
    assert trained.held_out.auc == trained.held_out.auc_within_problems == 1.0
    assert (trained.held_out.accuracy or 0) > 0.9
    assert trained.held_out_last.auc is None, "only good ones have a label"
    head_config, head = read_head(tmp_path)
    assert head_config == trained.config
    assert (head_config.template, head_config.delimiters, head_config.layer) == ("raw", ("\n\n",), 1)
    assert head_config.held_out["auc"] == 1.0
    assert head_config.training["labels"] == "by hand"
    scores = scores_by_hand(toy, head_config, head, data.problems[0])
    assert min(scores[0]) > 0.5 > scores[1][0]


def scores_by_hand(toy: Path, config: HeadConfig, head: ProcessHead, labelled: LabelledProblem) -> list[list[float]]:
    """Score as the format says, with nothing but the stock model."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(toy), toy_tokenizer()
    scores = []
    for solution in labelled.solutions:
        prompt = render(labelled.problem, tokenizer, config.template).tolist()
        steps = encode_steps(tokenizer, solution.steps, config.delimiters[0])
        states = model(torch.tensor([prompt + steps.token_ids.tolist()]), output_hidden_states=True).hidden_states
        at = [len(prompt) + end for end in steps.ends]
        scores.append(torch.sigmoid(head(states[config.layer][0, at])).tolist())
    return scores


def test_an_interrupted_run_ends_with_the_same_head(toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = read_base_files(EngineConfig(target=str(toy), device="cpu"))

    def run(name: str, on_progress: Callable[[str, int, int], None]) -> dict[str, torch.Tensor]:
        (tmp_path / name).mkdir(exist_ok=True)
        config = training_config(toy, tmp_path / name)
        train_process_head(config, toy_data(), base, tmp_path / name, on_progress)
        return load_file(tmp_path / name / "head.safetensors")

    whole = run("whole", lambda *_: None)
    for stop in (("hidden states", 16), ("training", 3)):

        def interrupt(part: str, n: int, _: int, stop: tuple[str, int] = stop) -> None:
            if (part, n) == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run("cut", interrupt)
    parts: list[tuple[str, int]] = []
    resumed = run("cut", lambda part, n, _: parts.append((part, n)))
    assert ("training", 4) in parts
    assert ("training", 3) not in parts
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    monkeypatch.setattr(BaseFiles, "load", lambda *_: pytest.fail("all hidden states are on disk"))
    again = run("cut", lambda *_: None)
    assert all(torch.equal(whole[name], again[name]) for name in whole)


def test_other_settings_are_not_taken_from_disk(toy: Path, tmp_path: Path) -> None:
    base = read_base_files(EngineConfig(target=str(toy), device="cpu"))
    for settings in ({}, {"layer": 1}, {"kind": "mlp", "width": 4}):
        config = training_config(toy, tmp_path, **settings)
        trained = train_process_head(config, toy_data(8), base, tmp_path, lambda *_: None)
        assert trained.config.layer == settings.get("layer", -1)
        assert trained.config.width == settings.get("width", 0)
    assert len(list(tmp_path.glob("features-*"))) == 2
    assert len(list(tmp_path.glob("head-*.pt"))) == 3


def test_nothing_to_judge_by_is_one_line(toy: Path, tmp_path: Path) -> None:
    config, base = training_config(toy, tmp_path), read_base_files(EngineConfig(target=str(toy), device="cpu"))
    data = toy_data(4)._replace(is_held_out=[False] * 4)
    with pytest.raises(ConfigError, match="no held-out problem has a labelled step"):
        train_process_head(config, data, base, tmp_path, lambda *_: None)


def test_a_solution_that_does_not_fit_is_left_out(toy: Path, tmp_path: Path) -> None:
    config = training_config(toy, tmp_path)
    base = read_base_files(EngineConfig(target=str(toy), device="cpu", max_context=40))
    data = toy_data(20)
    long = LabelledSolution("long", ("1 + 1" * 20,), (1.0,))
    problems = [*data.problems[:19], LabelledProblem(Problem("long", "1 + 1"), [long])]
    trained = train_process_head(config, data._replace(problems=problems), base, tmp_path, lambda *_: None)
    assert trained.training.steps + trained.held_out.steps == 19 * 3


# ---- the folder


def head_config() -> HeadConfig:
    return HeadConfig(
        base_model="toy",
        base_weights="w",
        dtype="float32",
        template="raw",
        delimiters=("\n\n",),
        layer=-1,
        kind="linear",
        width=0,
        hidden_size=6,
    )


@pytest.mark.parametrize("damage", ["config", "weights", "shape", "missing"])
def test_a_folder_that_is_no_head_is_one_line(damage: str, tmp_path: Path) -> None:
    if damage != "missing":
        write_head(tmp_path, head_config(), ProcessHead(7 if damage == "shape" else 6))
    if damage in ("config", "weights"):
        next(tmp_path.glob(f"*{damage[:6]}*" if damage == "config" else "head*")).write_text("{}")
    with pytest.raises(ConfigError, match="no process reward head") as caught:
        read_head(tmp_path)
    assert "\n" not in str(caught.value)


# ---- verdicts


def test_area_under_the_curve_by_hand() -> None:
    scores, good = np.array([0.9, 0.4, 0.4, 0.1]), np.array([True, True, False, False])
    one, two = np.zeros(4, np.int64), np.array([0, 1, 1, 0])
    assert area_under_curve(scores, good, one) == (2 + 1.5) / 4
    assert area_under_curve(scores, good, two) == (1 + 0.5) / 2
    assert area_under_curve(scores, good, np.array([0, 0, 1, 1])) is None


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), max_size=12))
def test_area_under_the_curve_counts_pairs(steps: list[tuple[int, bool, int]]) -> None:
    pairs = [(a, b) for a in steps for b in steps if a[1] and not b[1] and a[2] == b[2]]
    ordered = sum((a[0] > b[0]) + 0.5 * (a[0] == b[0]) for a, b in pairs)
    scores, good, groups = (np.array(values) for values in zip(*steps, strict=True)) if steps else [np.empty(0)] * 3
    found = area_under_curve(scores.astype(float), good.astype(bool), groups.astype(int))
    assert found == (ordered / len(pairs) if pairs else None)


def test_accuracy_is_about_the_side_of_one_half() -> None:
    verdicts = judge_scores(np.array([0.5, 0.49, 0.9]), np.array([0.5, 0.0, 0.2]), np.zeros(3, np.int64))
    assert (verdicts.steps, verdicts.good_share, verdicts.accuracy) == (3, 1 / 3, 2 / 3)


# ---- given labels


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_bytes(gzip.compress("\n".join(json.dumps(line) for line in lines).encode()))
    return path


LINE = {"id": "a", "prompt": "1 + 1?", "steps": ["1 + 1", "= 2"], "step_labels": [1, None], "in_math500": False}


def test_given_labels_are_read(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "x.jsonl.gz", LINE, {**LINE, "id": "b", "in_math500": True})
    plain, flagged = read_labelled_solutions(file)
    assert plain.problem == Problem("a", "1 + 1?")
    assert plain.solution == LabelledSolution("a", ("1 + 1", "= 2"), (1, None))
    assert (plain.is_test_problem, flagged.is_test_problem) == (False, True)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"steps": "x"}, "`steps` must be"),
        ({"step_labels": [1]}, "`step_labels` must have"),
        ({"step_labels": [1, 2]}, "`step_labels` must have"),
        ({"prompt": ""}, "`id` and `prompt`"),
    ],
)
def test_a_malformed_line_is_named(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    file = write_lines(tmp_path / "x.jsonl.gz", LINE, {**LINE, **change})
    with pytest.raises(ProblemError, match=rf"x\.jsonl\.gz:2: {what}"):
        read_labelled_solutions(file)


def test_test_problems_and_their_copies_are_held_out(toy: Path, tmp_path: Path) -> None:
    copies = [{**LINE, "id": f"c{i}", "prompt": f"{i}?"} for i in range(60)]
    file = write_lines(tmp_path / "x.jsonl.gz", LINE, {**LINE, "id": "b", "in_math500": True}, *copies, *copies[:0])
    config = training_config(toy, tmp_path).model_copy(update={"held_out": 0.25})
    data = given_data(config, file)
    assert data.is_held_out[:2] == [True, True], "the copy of a test problem is held out too"
    assert 5 < sum(data.is_held_out[2:]) < 27  # 15 of 60 expected, within 3.5 standard deviations


@pytest.mark.skipif(not DATA.is_dir(), reason="needs ../shared/data")
@pytest.mark.parametrize(("name", "n"), [("prm_steps_prmbench", 2078), ("processbench", 3200)])
def test_public_files_are_read_unchanged(name: str, n: int) -> None:
    given = read_labelled_solutions(DATA / f"{name}.jsonl.gz")
    assert len(given) == n
    assert {label for one in given for label in one.solution.labels} <= {0, 1, None}
    assert 0 < sum(one.is_test_problem for one in given) < n
