"""The head of EAGLE-3 against a naive one, its options, cached keys, and its folder."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.toys import toy_llama, toy_qwen2
from tts_orch.drafters.checkpoint import read_head, save_head
from tts_orch.drafters.draft_heads import new_head
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_config import HeadConfig, low_middle_high
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

_CONFIG = HeadConfig(
    architecture="eagle3",
    hidden_size=24,
    intermediate_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=50,
    draft_vocab_size=7,
    feature_layers=(1, 2, 4),
)
_VOCABULARY = DraftVocabulary(np.array([0, 3, 4, 11, 30, 31, 49]), 50)
_OPTIONS = [
    {},
    {"norm_before_residual": True},
    {"norm_before_fc": True, "target_hidden_size": 20},
    {"fc_norm": True, "norm_output": True, "attention_bias": True},
]


def _head(**options: object) -> Eagle3Head:
    torch.manual_seed(0)
    head = Eagle3Head(replace(_CONFIG, **options), _VOCABULARY).double().requires_grad_(False)  # type: ignore[arg-type]
    for name, weight in head.named_parameters():
        if "norm" in name:
            weight.copy_(1 + 0.3 * torch.randn(weight.shape))
    return head


def _inputs(head: Eagle3Head, n: int, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    features = torch.randn(batch, n, 3 * head.config.feature_size).double()
    return torch.randn(batch, n, 24).double(), features, torch.arange(n).expand(batch, n)


def _normed(state: Tensor, scale: Tensor) -> Tensor:
    return state / (state.square().mean() + 1e-6).sqrt() * scale


def _rotated(heads: Tensor, position: int) -> Tensor:
    angles = position * 10_000.0 ** -(torch.arange(0, 8, 2).double() / 8)
    first, second = heads[:4], heads[4:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()])


def _naive(head: Eagle3Head, embeddings: Tensor, hidden: Tensor, n_fed_back: int = 0) -> tuple[Tensor, Tensor]:
    """Compute states and logits row by row; the last `n_fed_back` features are the states of the rows before them."""
    weights, config = head.state_dict(), head.config

    def project(name: str, row: Tensor) -> Tensor:
        bias = weights.get(f"midlayer.{name}.bias")
        result: Tensor = weights[f"midlayer.{name}.weight"] @ row
        return result if bias is None else result + bias

    keys: list[Tensor] = []
    values: list[Tensor] = []
    states: list[Tensor] = []
    for position, (embedding, row) in enumerate(zip(embeddings, hidden, strict=True)):
        if config.norm_before_fc:
            row = _normed(row, weights["input_norm.weight"])
        if config.fc_norm:
            size = config.feature_size
            parts = [_normed(row[i * size : (i + 1) * size], weights[f"fc_norm.{i}.weight"]) for i in range(3)]
            row = torch.cat(parts)
        feature = weights["fc.weight"] @ row if position < len(hidden) - n_fed_back else states[-1]
        normed = _normed(feature, weights["midlayer.hidden_norm.weight"])
        both = torch.cat([_normed(embedding, weights["midlayer.input_layernorm.weight"]), normed])
        queries = project("self_attn.q_proj", both)
        keys.append(project("self_attn.k_proj", both))
        values.append(project("self_attn.v_proj", both))
        heads = []
        for number in range(4):
            shared = slice(8 * (number // 2), 8 * (number // 2) + 8)
            query = _rotated(queries[8 * number : 8 * number + 8], position)
            scores = torch.stack([query @ _rotated(key[shared], t) for t, key in enumerate(keys)]) / math.sqrt(8)
            heads.append(torch.stack([value[shared] for value in values]).T @ scores.softmax(0))
        state = (normed if config.norm_before_residual else feature) + project("self_attn.o_proj", torch.cat(heads))
        inner = _normed(state, weights["midlayer.post_attention_layernorm.weight"])
        gate = project("mlp.gate_proj", inner)
        state = state + project("mlp.down_proj", gate * gate.sigmoid() * project("mlp.up_proj", inner))
        states.append(_normed(state, weights["norm.weight"]) if config.norm_output else state)
    outputs = [state if config.norm_output else _normed(state, weights["norm.weight"]) for state in states]
    return torch.stack(states), torch.stack(outputs) @ weights["lm_head.weight"].T


@pytest.mark.parametrize("options", _OPTIONS)
def test_equals_a_naive_head(options: dict[str, object]) -> None:
    head = _head(**options)
    embeddings, hidden, positions = _inputs(head, 6)
    states, past = head(embeddings[:, :5], head.project(hidden[:, :5]), positions[:, :5])
    fed_back, _ = head(embeddings[:, 5:], states[:, -1:], positions[:, 5:], past=past)
    expected, logits = _naive(head, embeddings[0], hidden[0], n_fed_back=1)
    torch.testing.assert_close(torch.cat([states, fed_back], dim=1)[0], expected)
    torch.testing.assert_close(head.logits(torch.cat([states, fed_back], dim=1))[0], logits)


def test_a_mask_hides_keys() -> None:
    """Rows of a tree: the last two are siblings, each reads the first two and itself."""
    head = _head()
    embeddings, hidden, _ = _inputs(head, 4)
    features, positions = head.project(hidden), torch.tensor([[0, 1, 2, 2]])
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]], dtype=torch.bool)[None, None]
    tree, _ = head(embeddings, features, positions, mask)
    for rows in ([0, 1, 2], [0, 1, 3]):
        chain, _ = head(embeddings[:, rows], features[:, rows], positions[:, rows])
        torch.testing.assert_close(tree[:, rows], chain)


@pytest.mark.parametrize("n_layers", range(1, 40))
def test_hidden_states_by_default_are_different_ones_of_the_target(n_layers: int) -> None:
    layers = low_middle_high(n_layers)
    assert len(set(layers)) == len(layers) == min(3, n_layers + 1)
    assert all(-1 <= layer < n_layers for layer in layers)
    numbers = [n_layers if layer == -1 else layer for layer in layers]
    assert numbers == sorted(numbers)


def test_is_made_for_its_target() -> None:
    assert low_middle_high(32) == (2, 16, 29)
    config = HeadConfig.for_target(toy_qwen2().config, architecture="eagle3", draft_vocab_size=20)
    assert (config.architecture, config.feature_layers, config.feature_size) == ("eagle3", (0, 1, 2), 32)
    assert HeadConfig.from_json(json.loads(json.dumps(config.to_json()))) == config
    head = new_head(config)
    assert isinstance(head, Eagle3Head)
    assert head.logits(head.project(torch.zeros(2, 96))).shape == (2, 20)
    every = new_head(HeadConfig.for_target(toy_llama().config, architecture="eagle3", feature_layers=(1, -1)))
    assert isinstance(every, Eagle3Head)
    assert every.logits(every.project(torch.zeros(2, 64))).shape == (2, 97)


@pytest.mark.parametrize("options", [*_OPTIONS, {"has_embedding": True}])
def test_folders_keep_weights_and_vocabulary(tmp_path: Path, options: dict[str, object]) -> None:
    head = _head(**options)
    save_head(tmp_path, head)
    weights = load_file(tmp_path / "model.safetensors")
    assert weights["d2t"].dtype == torch.int64
    assert weights["t2d"].dtype == torch.bool
    assert ("embed_tokens.weight" in weights) == ("has_embedding" in options)
    again = read_head(tmp_path)
    assert again.config == head.config
    assert again.vocabulary == _VOCABULARY
    assert again.state_dict().keys() == head.state_dict().keys()
    for name, weight in head.state_dict().items():
        assert torch.equal(again.state_dict()[name], weight), name


def test_trimmed_heads_of_eagle_2_keep_their_vocabulary(tmp_path: Path) -> None:
    config = replace(_CONFIG, architecture="eagle", feature_layers=(-1,))
    save_head(tmp_path, new_head(config, _VOCABULARY))
    assert read_head(tmp_path).vocabulary == _VOCABULARY
    save_head(tmp_path, new_head(replace(config, draft_vocab_size=None)))
    assert read_head(tmp_path).vocabulary is None


def _spoil(folder: Path, name: str, value: Tensor | None) -> None:
    weights = load_file(folder / "model.safetensors")
    weights.pop(name)
    save_file(weights if value is None else {**weights, name: value}, folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("d2t", None, "without d2t"),
        ("t2d", None, "without t2d"),
        ("d2t", torch.arange(7), "t2d does not mark"),
        ("t2d", torch.ones(50, dtype=torch.bool), "t2d marks 50 tokens"),
        ("lm_head.weight", torch.zeros(8, 24), "not the weights of a draft head"),
    ],
)
def test_refuses_maps_that_do_not_belong_to_the_head(
    tmp_path: Path, name: str, value: Tensor | None, message: str
) -> None:
    save_head(tmp_path, _head())
    _spoil(tmp_path, name, value)
    with pytest.raises(ConfigError, match=message) as caught:
        read_head(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draft_vocab_size": 8}, "maps of 7 tokens, but draft_vocab_size is 8"),
        ({"draft_vocab_size": None}, "maps of 7 tokens, but draft_vocab_size is None"),
        ({"vocab_size": 49}, "maps to 50 tokens, but vocab_size is 49"),
    ],
)
def test_refuses_maps_of_another_size(tmp_path: Path, change: dict[str, object], message: str) -> None:
    save_head(tmp_path, _head())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(ConfigError, match=message):
        read_head(tmp_path)
