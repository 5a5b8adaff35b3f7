"""Every prompt form of published reward models, on toy weights: what is read, and that nothing is lost or shifted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
)

from tests.reward_toys import (
    PROBLEM,
    SAVED,
    STEPS,
    reward_tokenizer,
    save_classifier,
    save_encoder_classifier,
    shape,
)
from tts_orch.errors import ConfigError, TargetError
from tts_orch.records import Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards import skywork_prm
from tts_orch.rewards.base import RewardModel, Solution
from tts_orch.rewards.detection import detect_kind
from tts_orch.rewards.process_head import read_head
from tts_orch.rewards.qwen_math_prm import Qwen2ForProcessRewards
from tts_orch.rewards.registry import identity_of, load_reward_model, resolved
from tts_orch.rewards.skywork_prm import Qwen2WithValueHead
from tts_orch.rewards.steps import split_steps

TOLERANCE = 2e-5  # float32: sums in another order
TEXT = "\n\n".join(STEPS)
QUESTION = str(PROBLEM.prompt)
KINDS = list(SAVED)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parent = tmp_path_factory.mktemp("models")
    return {kind: save(parent / kind) for kind, save in SAVED.items()}


def load(folders: dict[str, Path], kind: Any, **settings: Any) -> RewardModel:
    return load_reward_model(RewardConfig(model=str(folders[kind]), kind=kind, threads=1, **settings))


def scores_of(model: RewardModel, *texts: str) -> list[tuple[float, ...]]:
    return [scores.scores for scores in model.score([Solution(PROBLEM, text) for text in texts])]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    [
        "a = 1",
        "a = 1\n\n",
        "a = 1\n\nb\n\n",
        "a\n\n\nb",
        "a\n\n\n\nb",
        "a\nb",
        "a<extra_0>b\n\nc ки d",
        "<eos>\n\n<bos>",
        "",
        "\n\n",
    ],
)
def test_there_are_as_many_scores_as_steps(folders: dict[str, Path], kind: str, text: str) -> None:
    (scores,) = scores_of(load(folders, kind), text)
    assert len(scores) == len(split_steps(text, ["\n\n"]))
    assert all(0 <= score <= 1 for score in scores)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_the_same_alone_in_a_batch_and_behind_kept_steps(folders: dict[str, Path], kind: str) -> None:
    texts = [TEXT, "10", TEXT + "\n\nno", "a\n\nb\n\nc\n\nd\n\ne"]
    alone = [scores_of(load(folders, kind), text)[0] for text in texts]
    model = load(folders, kind)
    together = scores_of(model, *texts)
    for one, other in zip(alone, together, strict=True):
        assert other == pytest.approx(one, abs=TOLERANCE)
    assert scores_of(model, *texts) == together  # all of them kept
    growing = load(folders, kind)
    for n_steps in range(1, len(STEPS) + 1):
        (scores,) = scores_of(growing, "\n\n".join(STEPS[:n_steps]))
    assert scores == pytest.approx(alone[0], abs=TOLERANCE)
    assert len({round(score, 4) for score in alone[3]}) > 1  # they do depend on the step


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_step_costs_its_own_tokens(folders: dict[str, Path], kind: str) -> None:
    model = load(folders, kind)
    read, whole = [], []
    for n_steps in range(1, 9):
        text = "\n\n".join(f"step number {i} is here" for i in range(n_steps))
        (scores,) = model.score([Solution(PROBLEM, text)])
        read.append(scores.n_tokens)
        whole.append(scores.n_tokens_whole)
    assert read[0] == whole[0]
    assert sum(read) == whole[-1]  # every token once
    assert sum(whole) > 3 * sum(read)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_long_has_no_score_and_is_not_cut(folders: dict[str, Path], kind: str) -> None:
    long = "\n\n".join("a step with many words" for _ in range(60))
    whole = load(folders, kind, max_context=3000)  # the toy's own limit is 512
    short, too_long = whole.score([Solution(PROBLEM, "a"), Solution(PROBLEM, long)])
    assert (len(short.scores), short.failure) == (1, "")
    assert too_long.scores == ()
    assert "more than the reward model reads (512)" in too_long.failure
    assert too_long.n_tokens == 0
    tight = load(folders, kind, max_context=short.n_tokens)
    assert len(tight.score([Solution(PROBLEM, "a")])[0].scores) == 1
    assert tight.score([Solution(PROBLEM, "ab")])[0].failure


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "trained_head"])  # it reads the target's own prompt
def test_choices_and_messages_are_part_of_the_question(folders: dict[str, Path], kind: str) -> None:
    model = load(folders, kind)
    turns = ({"role": "system", "content": "be short"}, {"role": "user", "content": QUESTION})
    plain, chat, choices = (
        scores.scores
        for scores in model.score(
            [
                Solution(PROBLEM, TEXT),
                Solution(Problem("q", messages=turns), TEXT),
                Solution(Problem("r", QUESTION, choices=("20", "21")), TEXT),
            ]
        )
    )
    assert chat == plain
    assert choices != pytest.approx(plain, abs=1e-3)


# What follows is written from the models' public usage, with the whole text tokenised at once and no part kept.


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


def chat(tokenizer: Any, *turns: tuple[str, str], opens_answer: bool = False) -> list[int]:
    messages = [{"role": role, "content": content} for role, content in turns]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=opens_answer)
    return ids_of(tokenizer, text)


def qwen_reference(folder: Path, tokenizer: Any) -> list[float]:
    model = Qwen2ForProcessRewards.from_pretrained(folder).eval()
    system = "Please reason step by step, and put your final answer within \\boxed{}."
    answer = "".join(f"{step}<extra_0>" for step in STEPS)
    token_ids = torch.tensor([chat(tokenizer, ("system", system), ("user", QUESTION), ("assistant", answer))])
    law = model.score(model.model(token_ids).last_hidden_state).softmax(-1)
    return law[0, token_ids[0] == tokenizer.convert_tokens_to_ids("<extra_0>"), 1].tolist()


def skywork_reference(folder: Path, tokenizer: Any) -> list[float]:
    model = Qwen2WithValueHead.from_pretrained(folder).eval()
    token_ids, ends = ids_of(tokenizer, f"{tokenizer.bos_token}{QUESTION}\n"), []
    for step in STEPS:
        token_ids += ids_of(tokenizer, step) + ids_of(tokenizer, "\n")
        ends.append(len(token_ids) - 1)
    values = model.v_head["summary"](model.model(torch.tensor([token_ids])).last_hidden_state)
    return values[0, ends, 0].sigmoid().tolist()


def rlhflow_reference(folder: Path, tokenizer: Any) -> list[float]:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    words = [*ids_of(tokenizer, "+"), *ids_of(tokenizer, "-")]
    turns: list[tuple[str, str]] = []
    scores = []
    for i, step in enumerate(STEPS):
        turns.append(("user", step if i else f"{QUESTION} {step}"))
        logits = model(torch.tensor([chat(tokenizer, *turns, opens_answer=True)])).logits[0, -1, words]
        scores.append(float(logits.softmax(-1)[0]))
        turns.append(("assistant", "+"))
    return scores


def math_shepherd_reference(folder: Path, tokenizer: Any) -> list[float]:
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    lines = "\n".join(f"Step {i}: {step} ки" for i, step in enumerate(STEPS, start=1))
    token_ids = torch.tensor([ids_of(tokenizer, f"{tokenizer.bos_token}{QUESTION} {lines}")])
    law = model(token_ids).logits[0][:, [*ids_of(tokenizer, "+"), *ids_of(tokenizer, "-")]].softmax(-1)
    return law[token_ids[0] == ids_of(tokenizer, "ки")[0], 0].tolist()


def trained_head_reference(folder: Path, tokenizer: Any) -> list[float]:
    config, head = read_head(folder)
    model = AutoModelForCausalLM.from_pretrained(config.base_model).eval()
    token_ids, ends = chat(tokenizer, ("user", QUESTION), opens_answer=True), []
    for step in STEPS:
        token_ids += ids_of(tokenizer, step) + ids_of(tokenizer, "\n\n")
        ends.append(len(token_ids) - 1)
    hidden = model(torch.tensor([token_ids]), output_hidden_states=True).hidden_states[config.layer][0, ends]
    return head(hidden).sigmoid().tolist()


REFERENCES = {
    "qwen_math_prm": qwen_reference,
    "skywork_prm": skywork_reference,
    "rlhflow_prm": rlhflow_reference,
    "math_shepherd": math_shepherd_reference,
    "trained_head": trained_head_reference,
}


@pytest.mark.parametrize("kind", list(REFERENCES))
@torch.no_grad()
def test_scores_are_those_of_the_public_usage(folders: dict[str, Path], kind: str) -> None:
    tokenizer = reward_tokenizer() if kind == "trained_head" else AutoTokenizer.from_pretrained(folders[kind])
    want = REFERENCES[kind](folders[kind], tokenizer)
    assert len(want) == len(STEPS)
    assert scores_of(load(folders, kind), TEXT)[0] == pytest.approx(want, abs=TOLERANCE)


def test_a_step_is_tokenised_apart_from_the_separator_behind_it(folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(folders["skywork_prm"])
    assert len(ids_of(tokenizer, "a.\n")) == 2  # the stop and the line end are one token, but for a reward model
    prompt, step = skywork_prm.prompt_form(tokenizer)(PROBLEM, ["a."])
    assert [tokenizer.decode([i]) for i in step.token_ids] == ["a", ".", "\n"]
    assert tokenizer.decode(prompt.token_ids) == f"<bos>{QUESTION}\n"


def test_a_literal_mark_moves_no_score(folders: dict[str, Path]) -> None:
    """The scores are read at the real marks: a step's later neighbours see its text, and the earlier ones do not."""
    model = load(folders, "qwen_math_prm")
    plain, literal = scores_of(model, "a\n\nb\n\nc", "a\n\nb<extra_0>\n\nc")
    assert len(literal) == 3
    assert literal[0] == plain[0]
    assert literal[1] != plain[1]


def test_steps_that_are_numbered_already_get_no_second_number(folders: dict[str, Path]) -> None:
    model = load(folders, "math_shepherd")
    plain, numbered = scores_of(model, "a\n\nb", "Step 1: a\n\nStep 2: b")
    assert numbered == plain


def test_a_probability_of_exactly_zero_survives(tmp_path: Path) -> None:
    folder = SAVED["qwen_math_prm"](tmp_path)
    model = Qwen2ForProcessRewards.from_pretrained(folder)
    with torch.no_grad():
        model.score[2].weight.zero_()
        model.score[2].bias.copy_(torch.tensor([1000.0, -1000.0]))
    model.save_pretrained(folder)
    config = RewardConfig(model=str(folder), kind="qwen_math_prm", threads=1)
    assert scores_of(load_reward_model(config), TEXT) == [(0.0, 0.0, 0.0)]


def test_what_is_no_number_is_a_failure(tmp_path: Path) -> None:
    folder = SAVED["skywork_prm"](tmp_path)
    model = Qwen2WithValueHead.from_pretrained(folder)
    with torch.no_grad():
        model.v_head["summary"].bias.fill_(float("nan"))
    model.save_pretrained(folder)
    (scores,) = load_reward_model(RewardConfig(model=str(folder), kind="skywork_prm", threads=1)).score(
        [Solution(PROBLEM, TEXT)]
    )
    assert scores.scores == ()
    assert "no probability" in scores.failure


@torch.no_grad()
def test_an_outcome_model_in_a_dialogue_is_asked_once(tmp_path: Path) -> None:
    folder = SAVED["rlhflow_prm"](tmp_path / "Llama3.1-8B-ORM-Mistral-Data")
    assert detect_kind(str(folder)) == "rlhflow_orm"
    tokenizer, reader = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    words = [*ids_of(tokenizer, "+"), *ids_of(tokenizer, "-")]
    shown = torch.tensor([chat(tokenizer, ("user", f"{QUESTION} {TEXT}"), opens_answer=True)])
    with torch.no_grad():
        want = float(reader(shown).logits[0, -1, words].softmax(-1)[0])
    model = load_reward_model(RewardConfig(model=str(folder), threads=1))
    assert scores_of(model, TEXT, "") == [pytest.approx((want,), abs=TOLERANCE), ()]
    (longer,) = model.score([Solution(PROBLEM, f"{TEXT}\n\nno")])
    assert longer.n_tokens < longer.n_tokens_whole / 2, "read anew what it had read"


def test_an_outcome_model_gives_the_sigmoid_of_its_logit(tmp_path: Path) -> None:
    folder = save_classifier(tmp_path)
    stock = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    token_ids = torch.tensor([chat(reward_tokenizer(), ("user", QUESTION), ("assistant", TEXT))])
    want = float(stock.score(stock.model(token_ids).last_hidden_state)[0, -1].sigmoid())
    model = load_reward_model(RewardConfig(model=str(folder), threads=1))
    partly, whole, empty = model.score([Solution(PROBLEM, text) for text in (STEPS[0] + "\n\n", TEXT, "")])
    assert whole.scores == pytest.approx((want,), abs=TOLERANCE)
    assert len(partly.scores) == 1
    assert empty.scores == ()
    assert whole.n_tokens < whole.n_tokens_whole  # the question and the first step were read with the other one


@torch.no_grad()
def test_an_encoder_is_an_outcome_model_too(tmp_path: Path) -> None:
    folder = save_encoder_classifier(tmp_path)
    stock = BertForSequenceClassification.from_pretrained(folder).eval()
    model = load_reward_model(RewardConfig(model=str(folder), threads=1, batch=2))
    texts = [TEXT, "a", "a" * 600, "b\n\nc"]
    answers = model.score([Solution(PROBLEM, text) for text in texts])
    for text, answer in zip(texts, answers, strict=True):
        if len(text) > 500:
            assert answer.scores == ()
            assert answer.failure
            continue
        pair = reward_tokenizer()(QUESTION, text, return_tensors="pt")
        assert answer.scores == pytest.approx((float(stock(**pair).logits.softmax(-1)[0, 1]),), abs=TOLERANCE)


@torch.no_grad()
def test_a_judge_is_asked_after_every_step(folders: dict[str, Path]) -> None:
    stock = AutoModelForCausalLM.from_pretrained(folders["judge"]).eval()
    tokenizer = reward_tokenizer()
    yes, no = ids_of(tokenizer, "Yes")[0], ids_of(tokenizer, "No")[0]
    want = []
    for n_steps in range(1, len(STEPS) + 1):
        shown = "".join(f"{step}\n\n" for step in STEPS[:n_steps])
        request = (
            "Check the solution of a problem, step by step.\n\nProblem:\n"
            f"{QUESTION}\n\nSolution so far:\n\n{shown}Is the solution correct so far? Answer with Yes or No."
        )
        token_ids = torch.tensor([chat(tokenizer, ("user", request), opens_answer=True)])
        want.append(float(stock(token_ids).logits[0, -1, [yes, no]].softmax(-1)[0]))
    assert scores_of(load(folders, "judge"), TEXT)[0] == pytest.approx(want, abs=TOLERANCE)


def test_a_head_is_not_put_on_other_weights(tmp_path: Path) -> None:
    folder = SAVED["trained_head"](tmp_path / "head")
    SAVED["math_shepherd"](tmp_path / "head-base")
    with pytest.raises(ConfigError, match="trained on other weights"):
        load_reward_model(RewardConfig(model=str(folder), threads=1))


def test_kinds_are_told_where_that_is_sure(folders: dict[str, Path], tmp_path: Path) -> None:
    assert detect_kind(str(folders["qwen_math_prm"])) == "qwen_math_prm"
    assert detect_kind(str(folders["skywork_prm"])) == "skywork_prm"
    assert detect_kind(str(save_classifier(tmp_path / "orm"))) == "classifier"
    assert detect_kind(str(folders["trained_head"])) == "trained_head"
    assert detect_kind("my_package.rewards:length") == "callable"
    named = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    assert detect_kind(str(SAVED["rlhflow_prm"](named))) == "rlhflow_prm"
    with pytest.raises(ConfigError, match=r"not sure what .* give one of qwen_math_prm, .*code_tests"):
        detect_kind(str(folders["rlhflow_prm"].rename(tmp_path / "some-model")))
    (tmp_path / "some-model").rename(folders["rlhflow_prm"])
    with pytest.raises(TargetError, match="no model here"):
        detect_kind(str(tmp_path / "nothing.gguf"))


def test_a_model_of_another_kind_is_refused_in_one_line(folders: dict[str, Path]) -> None:
    config = RewardConfig(model=str(folders["rlhflow_prm"]), kind="qwen_math_prm", threads=1)
    with pytest.raises(TargetError, match="no reward model of this kind") as error:
        load_reward_model(config)
    assert "\n" not in str(error.value)


def test_a_classifier_of_many_classes_is_refused(tmp_path: Path) -> None:
    LlamaForSequenceClassification(LlamaConfig(**shape(), num_labels=3)).save_pretrained(tmp_path)
    reward_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(TargetError, match="3 classes"):
        load_reward_model(RewardConfig(model=str(tmp_path), kind="classifier", threads=1))


def test_identities_follow_the_weights(folders: dict[str, Path], tmp_path: Path) -> None:
    configs = [resolved(RewardConfig(model=str(folders[kind]))) for kind in ("qwen_math_prm", "skywork_prm")]
    assert len({identity_of(config) for config in configs}) == 2
    assert identity_of(RewardConfig(model="a.b:c", kind="callable")) == "a.b:c"


def length_reward(problem: Problem, steps: Sequence[str]) -> list[float]:
    return [1 / len(step) for step in steps]


def test_a_function_of_the_user() -> None:
    model = load_reward_model(RewardConfig(model=f"{__name__}:length_reward", kind="callable"))
    assert scores_of(model, "a\n\nbb", "", "c") == [(1.0, 0.5), (), (1.0,)]


@pytest.mark.parametrize(
    ("function", "failure"),
    [
        (lambda problem, steps: [1.5] * len(steps), "no probability"),
        (lambda problem, steps: [0.5] * 5, "5 scores for 2 steps"),
        (lambda problem, steps: 1 / 0, "division by zero"),
    ],
)
def test_what_a_function_does_wrong_is_a_failure(function: Any, failure: str) -> None:
    from tts_orch.rewards.callable import FunctionModel

    (scores,) = FunctionModel(function).score([Solution(PROBLEM, "a\n\nb")])
    assert scores.scores == ()
    assert failure in scores.failure


def test_a_function_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"give package\.module:function"):
        load_reward_model(RewardConfig(model="tts_orch.records:nothing", kind="callable"))


def test_a_reward_model_needs_a_name() -> None:
    with pytest.raises(ConfigError, match=r"reward\.model"):
        RewardConfig()
    assert RewardConfig(kind="judge").model is None
