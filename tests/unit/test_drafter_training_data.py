"""What draft heads learn from: texts, features and laws of the target, batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.head_toys import frozen_toy, sequence
from tests.toys import VOCABULARY_SIZE, toy_gemma2, toy_llama, toy_tokenizer
from tts_orch.cli.drafter_texts import sequences_of
from tts_orch.config import load_config
from tts_orch.drafters.head_config import LAST_HIDDEN_STATE
from tts_orch.errors import ProblemError, TargetError
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.training.base_model import BaseFiles
from tts_orch.training.drafters.batches import assemble, batches_by_length, plan_steps
from tts_orch.training.drafters.feature_shards import FeatureShard, features_key, write_missing
from tts_orch.training.drafters.given_answers import Encoding, given_sequences, read_given_answers
from tts_orch.training.drafters.settings import DrafterTrainingConfig, DraftHeadSettings
from tts_orch.training.drafters.target_laws import FrozenTarget
from tts_orch.training.drafters.training_sequences import choose_sequences, n_training_tokens
from tts_orch.training.drafters.training_texts import TrainingTexts, texts_of

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


def test_every_turn_of_the_assistant_is_learned_and_conversations_stay_whole(tmp_path: Path) -> None:
    turns = [
        ("user", "1?"),
        ("assistant", "a"),
        ("user", "2?"),
        ("tool_call", "f()"),
        ("tool", "3"),
        ("assistant", "b"),
    ]
    messages = [{"role": role, "content": content} for role, content in turns]
    lines = [{"id": str(i), "messages": [{**messages[0], "content": f"{i}?"}, *messages[1:]]} for i in range(40)]
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"
    answers = read_given_answers(file, "messages", slice(5, 25))
    read = [*given_sequences(answers, Encoding(tokenizer, "auto", 64, 0.3))]
    assert len(read) == 3 * 20
    texts = [tokenizer.decode(one.token_ids) for one in read[:3]]
    assert texts == ["u:5?;a<eos>", "u:5?;a:a;u:2?;f()<eos>", "u:5?;a:a;u:2?;a:f();t:3;b<eos>"]
    held_out = [one.is_held_out for one in read]
    assert held_out == [flag for flag in held_out[::3] for _ in range(3)]
    assert 0 < sum(held_out) < len(held_out)
    file.write_text('{"id": "1", "messages": [{"role": "user", "content": "1?"}]}')
    with pytest.raises(ProblemError, match=r"a\.jsonl:1: no turn of the assistant"):
        read_given_answers(file, "messages")


def test_recipes_of_one_size_have_equal_data_and_effort() -> None:
    recipes = {
        file.stem: DrafterTrainingConfig.model_validate({"out": "x", "engine": {"target": "x"}, **load_config(file)})
        for file in (Path(__file__).parents[2] / "recipes/drafters").glob("*.yaml")
    }
    sizes = {name: sum(part.tokens or 0 for part in recipe.data) for name, recipe in recipes.items()}
    efforts = {name: recipe.head.token_passes for name, recipe in recipes.items()}
    for of in (sizes, efforts):
        assert of["math"] == of["chat"] == of["code"] == of["mixed"] == of["double"] / 2
    assert all(efforts[name] == 3 * sizes[name] for name in ("math", "chat", "code", "mixed", "double"))
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


def test_texts_without_answers_to_learn_are_left_out(tmp_path: Path) -> None:
    sequences = [sequence(4, 3), sequence(4, 3).cut_to(0), sequence(4, 3, is_held_out=True)]
    _, training, held_out = texts_of([sequences], tmp_path, LAST_HIDDEN_STATE)
    assert (training.n_laws, held_out.n_laws) == ([3], [3])
    assert TrainingTexts([]).lengths == []


@pytest.fixture(scope="module")
def target() -> FrozenTarget:
    return frozen_toy()


def test_features_and_laws_are_those_of_the_target_alone(target: FrozenTarget, tmp_path: Path) -> None:
    sequences = [sequence(2 + i, 3 + 2 * i % 5, seed=i) for i in range(10)]
    sequences[3] = sequences[3].cut_to(2)
    shard = FeatureShard(tmp_path, sequences, LAST_HIDDEN_STATE)
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


def test_features_of_several_layers_are_kept_with_the_last_states(target: FrozenTarget, tmp_path: Path) -> None:
    sequences = [sequence(2 + i, 5, seed=i) for i in range(3)]
    shard, usual = (
        FeatureShard(tmp_path / name, sequences, layers) for name, layers in (("3", (0, 1, -1)), ("1", (-1,)))
    )
    for one, name in ((shard, "3"), (usual, "1")):
        (tmp_path / name).mkdir()
        one.write(target)
    stock = toy_llama(torch.float32)
    for number, one in enumerate(sequences):
        read, last = shard.read(number), usual.read(number)
        hidden = stock(torch.from_numpy(one.token_ids[:-1]).long()[None], output_hidden_states=True).hidden_states
        expected = torch.cat([hidden[0][0], hidden[1][0], hidden[-1][0]], dim=-1)
        torch.testing.assert_close(read.features, expected, rtol=2e-3, atol=2e-3)
        torch.testing.assert_close(read.states, last.features[one.first_law :], rtol=2e-3, atol=2e-3)
        assert torch.equal(read.states, last.states)
        assert torch.equal(read.laws.top_ids, last.laws.top_ids)
        assert read.laws.expected.shape == (one.n_laws, 0)
    names = {features_key("w", "float32", layers) for layers in ((-1,), (0, 1, -1), (1, 0, -1))}
    assert len(names) == 3
    assert features_key("w", "float32", (-1,)) == "features-w-float32"


def test_targets_with_soft_caps_are_refused() -> None:
    model = toy_gemma2(torch.float32)
    model.config.final_logit_softcapping = 0.5
    with pytest.raises(TargetError, match="no linear map"):
        FrozenTarget(model, VOCABULARY_SIZE, "gemma")


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
    shard = FeatureShard(tmp_path, sequences, LAST_HIDDEN_STATE)
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
            assert torch.equal(batch.states[row], one.features[position])
    assert next(rows, None) is None


@pytest.mark.parametrize(("loss", "n_passes"), [("eagle2", 1), ("hass", 3), ("eagle3", 5)])
def test_passes_are_those_of_the_loss_unless_they_are_given(loss: Any, n_passes: int) -> None:
    settings = DraftHeadSettings(loss=loss)
    assert settings.n_passes == settings.in_use.get("passes", 1) == n_passes
    if loss != "eagle2":
        assert DraftHeadSettings(loss=loss, passes=2).n_passes == 2
        assert DraftHeadSettings(loss=loss, passes=n_passes).in_use == settings.in_use
