"""Folders of drafters: own heads, published heads, language models; what does not fit the target is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.neural_toys import PUBLISHED_LAYER, toy_facts, toy_head
from tests.toys import save_toy, toy_llama, toy_tokenizer
from tts_orch.config import DraftingConfig
from tts_orch.drafters.causal_lm import CausalLM
from tts_orch.drafters.checkpoint import load_network, read_head, save_head
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.eagle_network import EagleNetwork
from tts_orch.drafters.loading import load_drafter
from tts_orch.drafters.neural_drafter import NeuralDrafter
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.engine.stable_linear import StableLinear
from tts_orch.engine.target import Target
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.composed_drafter import ComposedDrafter

Weights = dict[str, Tensor]


@cache
def _facts() -> TargetFacts:
    return toy_facts()


@cache
def _target() -> Target:
    return Target(toy_llama(), toy_tokenizer(), numerics="fast", name="toy", weights_id="toy weights")


def _write(folder: Path) -> EagleHead:
    head = toy_head(_facts())
    save_head(folder, head)
    return head


def _states(network: HeadNetwork) -> Tensor:
    tokens, features = torch.arange(3, 8)[None], torch.linspace(-1, 1, 5 * 32, dtype=torch.float64).view(1, 5, 32)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    return network.read(tokens, features, torch.arange(5)[None], mask, [])[0]


def test_a_head_is_read_as_it_was_written(tmp_path: Path) -> None:
    head = _write(tmp_path)
    found = read_head(tmp_path)
    assert found.config == head.config
    for name, weight in head.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weight, rtol=0, atol=0)
    network = load_network(tmp_path, _facts())
    assert isinstance(network, EagleNetwork)
    torch.testing.assert_close(_states(network), _states(EagleNetwork(head, _facts())))


def test_bit_stable_targets_lend_their_kernels() -> None:
    facts = toy_facts(torch.float32)
    plain = EagleNetwork(toy_head(facts), facts)
    threads = n_threads()
    stable = EagleNetwork(toy_head(facts), replace(facts, is_bitwise=True))
    set_threads(threads)  # the kernels leave torch one
    assert isinstance(stable._head.fc, StableLinear)
    tokens, features, positions = (
        torch.arange(3, 8)[None],
        torch.linspace(-1, 1, 160).view(1, 5, 32),
        torch.arange(5)[None],
    )
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    first, second = (network.read(tokens, features, positions, mask, [])[0] for network in (plain, stable))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def _change_config(folder: Path, **changes: object) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "config.json: No such file"),
        (lambda folder: (folder / "config.json").write_text("{"), "config.json: "),
        (lambda folder: (folder / "config.json").write_text("[]"), "not a configuration"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x"), "not the weights of a draft head"),
        (lambda folder: (folder / "model.safetensors").unlink(), "not the weights of a draft head"),
        (lambda folder: _change_config(folder, intermediate_size=7), "not the weights of a draft head"),
        (lambda folder: _change_config(folder, target_weights_id="others"), "a target with other weights"),
        (lambda folder: _change_config(folder, target_tokenizer_id="another"), "a target with other tokenizer"),
        (lambda folder: _change_config(folder, vocab_size=50), "vocab_size is 50, the target has"),
        (lambda folder: _change_config(folder, feature_layers=[2]), "not layers of this target"),
    ],
)
def test_refuses_what_is_damaged_or_of_another_target(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    _write(tmp_path)
    damage(tmp_path)
    with pytest.raises(ConfigError, match=message) as caught:
        load_network(tmp_path, _facts())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


def test_refuses_another_width(tmp_path: Path) -> None:
    _write(tmp_path)
    with pytest.raises(ConfigError, match="hidden_size is 32, the target's 48"):
        load_network(tmp_path, replace(_facts(), hidden_size=48))


# Published heads.

_LLAMA_CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    **PUBLISHED_LAYER,
    "bias": True,
}


def _publish(
    folder: Path,
    change: Callable[[Weights], object] = lambda weights: None,
    suffix: str = "bin",
    **settings: object,
) -> EagleHead:
    head = toy_head(_facts())
    weights: Weights = {name: weight.detach().clone() for name, weight in head.state_dict().items()}
    weights["embed_tokens.weight"] = _facts().embedding.float()
    change(weights)
    (folder / "config.json").write_text(json.dumps({**_LLAMA_CONFIG, **settings}))
    if suffix == "bin":
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors")
    return head


@pytest.mark.parametrize("suffix", ["bin", "safetensors"])
def test_published_heads_draft_like_own_ones(tmp_path: Path, suffix: str) -> None:
    head = _publish(tmp_path, suffix=suffix)
    network = load_network(tmp_path, _facts())
    assert network.feature_layers == (-1,)
    torch.testing.assert_close(_states(network), _states(EagleNetwork(head, _facts())))


def test_published_heads_may_lack_a_bias_and_hold_copies(tmp_path: Path) -> None:
    lm_head = toy_llama().get_output_embeddings().weight.half()
    others = {"lm_head.weight": lm_head, "layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}
    _publish(tmp_path, lambda weights: (weights.pop("fc.bias"), weights.update(others)))
    head = toy_head(_facts())
    with torch.no_grad():
        head.fc.bias.zero_()
    torch.testing.assert_close(_states(load_network(tmp_path, _facts())), _states(EagleNetwork(head, _facts())))


def test_positions_of_published_heads_are_scaled_as_they_say(tmp_path: Path) -> None:
    head = _publish(tmp_path, rope_scaling={"type": "linear", "factor": 4.0})
    plain = _states(EagleNetwork(head, _facts()))
    head.config = replace(head.config, rope_scaling={"rope_type": "linear", "factor": 4.0})
    scaled = _states(EagleNetwork(head, _facts()))
    assert not torch.allclose(scaled, plain)
    torch.testing.assert_close(_states(load_network(tmp_path, _facts())), scaled)
    _publish(tmp_path, rope_scaling={"type": "dynamic", "factor": 4.0})
    with pytest.raises(ConfigError, match="cannot scale its rotary positions by 'dynamic'"):
        load_network(tmp_path, _facts())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda weights: weights["embed_tokens.weight"].mul_(1.2), "its embed_tokens are not the target's"),
        (lambda weights: weights.update({"embed_tokens.weight": torch.zeros(98, 32)}), "its embed_tokens are not"),
        (lambda weights: weights.update({"lm_head.weight": torch.zeros(97, 32)}), "its lm_head is not the target's"),
        (
            lambda weights: weights.update({"midlayer.norm.weight": torch.ones(32)}),
            "not a head of EAGLE-2, HASS or EAGLE-3",
        ),
        (lambda weights: weights.pop("layers.0.mlp.up_proj.weight"), "not a head of EAGLE-2, HASS or EAGLE-3"),
    ],
)
def test_refuses_published_heads_of_other_targets_or_kinds(
    tmp_path: Path, change: Callable[[Weights], object], message: str
) -> None:
    _publish(tmp_path, change)
    with pytest.raises(ConfigError, match=message) as caught:
        load_network(tmp_path, _facts())
    assert "\n" not in str(caught.value)


class _Harmful:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return (_harm, ("x",))


def _harm(argument: str) -> None:
    raise AssertionError("a file of weights ran code")


def test_files_of_weights_run_no_code(tmp_path: Path) -> None:
    _publish(tmp_path, lambda weights: weights.update({"fc.weight": _Harmful()}))  # type: ignore[dict-item]
    with pytest.raises(ConfigError, match="not a file of weights"):
        load_network(tmp_path, _facts())


# Language models, and drafters as settings ask for them.


def test_language_models_of_the_same_tokenizer_draft(tmp_path: Path) -> None:
    network = load_network(save_toy(tmp_path), _facts())
    assert isinstance(network, CausalLM)
    assert network.feature_layers == ()
    with pytest.raises(ConfigError, match="its tokenizer is not the target's"):
        load_network(tmp_path, replace(_facts(), tokenizer_id="another"))
    with pytest.raises(ConfigError, match="knows 97 tokens, the target 98"):
        load_network(tmp_path, replace(_facts(), vocab_size=98))
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(ConfigError, match=r"model\.safetensors: not a file of weights"):
        load_network(tmp_path, _facts())


def test_settings_choose_one_drafter_or_a_composition(tmp_path: Path) -> None:
    _write(tmp_path)
    alone = load_drafter(DraftingConfig(drafter="neural", drafters={"math": tmp_path}), _target(), is_shared=False)
    assert isinstance(alone, NeuralDrafter)
    assert alone.feature_layers == (-1,)
    both = load_drafter(
        DraftingConfig(drafter="stand", drafters={"math": tmp_path}, verification="rejection"),
        _target(),
        is_shared=False,
    )
    assert isinstance(both, ComposedDrafter)
    assert list(both.members) == ["stand", "math"]
    assert load_drafter(DraftingConfig(drafter="none"), _target(), is_shared=False) is None
