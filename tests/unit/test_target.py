"""A target is served right or refused in one line; what is asked of it never changes what it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    AutoConfig,
    MambaConfig,
    MambaForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from tests.exactness.decoding import decode, new_decoder, prompt, request
from tests.toys import VOCABULARY_SIZE, save_toy, toy_llama, toy_qwen2
from tts_orch.config import EngineConfig
from tts_orch.engine.target import Target, load_target
from tts_orch.engine.threads import set_threads
from tts_orch.errors import ConfigError, TargetError
from tts_orch.records import SamplingParams


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    set_threads(1)


def recurrent() -> PreTrainedModel:
    sizes = {"hidden_size": 16, "state_size": 4, "num_hidden_layers": 1, "time_step_rank": 4, "expand": 2}
    return MambaForCausalLM(MambaConfig(vocab_size=VOCABULARY_SIZE, use_mambapy=False, **sizes))


def encoder_decoder() -> PreTrainedModel:
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(vocab_size=VOCABULARY_SIZE, decoder_start_token_id=0, **sizes))


def other_heads() -> PreTrainedModel:
    """Keys of two heads where the configuration says four, as with layers of different sizes."""
    model = toy_llama(torch.float32)
    model.config.num_key_value_heads = 4
    return model


def attention_sinks() -> PreTrainedModel:
    """Every layer hands its attention function a learned sink, which the stock one ignores here."""

    def add_sink(module: nn.Module, arguments: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        return arguments, {**options, "s_aux": torch.zeros(4)}

    model = toy_llama(torch.float32)
    for layer in model.model.layers:
        layer.self_attn.register_forward_pre_hook(add_sink, with_kwargs=True)
    return model


@pytest.mark.parametrize("numerics", ["fast", "bitwise"])
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (recurrent, "num_attention_heads"),
        (encoder_decoder, "cannot be served"),
        (other_heads, r"layer 0 has keys \(2, 8\)"),
        (attention_sinks, "s_aux"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(
    build: Callable[[], PreTrainedModel], reason: str, numerics: str
) -> None:
    with pytest.raises(TargetError, match=reason) as caught:
        Target(build(), numerics=numerics, name="toy")
    assert "\n" not in str(caught.value)


def _truncate(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:2000])


def _forget_the_tokenizer(folder: Path) -> None:
    for file in folder.glob("token*"):
        file.unlink()


def _no_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


@pytest.mark.parametrize("damage", [_truncate, _forget_the_tokenizer, _no_json])
def test_damaged_files_are_reported_in_one_line(damage: Callable[[Path], None], tmp_path: Path) -> None:
    damage(save_toy(tmp_path))
    with pytest.raises(TargetError, match=r": cannot load the target model \(.+\); give") as caught:
        load_target(EngineConfig(target=str(tmp_path), threads=1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [ValueError(), KeyError("model_type"), RuntimeError("a\nb")])
def test_any_error_while_loading_is_one_line(error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(AutoConfig, "from_pretrained", fail)
    with pytest.raises(TargetError, match=r"cannot load the target model \((ValueError|'model_type'|a)\)"):
        load_target(EngineConfig(target=str(save_toy(tmp_path)), threads=1))


def test_an_unknown_device_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^device: .*'foo'"):
        load_target(EngineConfig(target=str(save_toy(tmp_path)), device="foo"))


@pytest.mark.parametrize("numerics", ["fast", "bitwise"])
def test_the_fingerprint_does_not_depend_on_what_is_served(numerics: str) -> None:
    targets = [Target(toy_llama(torch.float32), numerics=numerics, max_context=n) for n in (None, 2, 40, 5000)]
    assert {target.numerics for target in targets} == {numerics}
    assert len({target.fingerprint for target in targets}) == 1
    assert [target.max_context for target in targets] == [1024, 2, 40, 1024]
    assert Target(toy_qwen2(torch.float32), numerics=numerics).fingerprint != targets[0].fingerprint


@pytest.mark.parametrize("max_context", [2, 3, 70])
def test_little_context_is_measured_and_served(max_context: int) -> None:
    target = Target(toy_llama(), max_context=max_context)
    cost = target.measure_cost(max_batch=2)
    assert (cost.seconds([1, 10]) > 0).all()
    one = request("one", prompt(1), SamplingParams(max_new_tokens=100, min_new_tokens=100))
    assert len(decode(new_decoder(target), [one])["one"].tokens) == max_context - 1


@pytest.mark.parametrize("numerics", ["fast", "bitwise"])
@pytest.mark.parametrize("limit", [3, 4, 7, 17])
def test_a_model_that_reads_little_is_served(limit: int, numerics: str) -> None:
    model = toy_llama(torch.float32)
    model.config.max_position_embeddings = limit
    seen: list[int] = []
    model.model.rotary_emb.register_forward_pre_hook(
        lambda module, arguments, options: seen.append(int(options["position_ids"].max())), with_kwargs=True
    )
    target = Target(model, numerics=numerics)
    target.measure_cost(max_batch=2)
    assert (target.max_context, target.numerics) == (limit, numerics)
    assert max(seen) < limit
