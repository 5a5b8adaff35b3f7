"""The draft head against a naive one, with and without cached keys; its configuration as JSON."""

from __future__ import annotations

import json
import math

import pytest
import torch
from torch import Tensor

from tests.toys import toy_gemma2, toy_llama
from tts_orch.drafters.eagle_head import EagleHead
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.errors import ConfigError

_CONFIG = HeadConfig(
    hidden_size=24,
    intermediate_size=40,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=50,
    attention_bias=True,
)


@pytest.fixture
def head() -> EagleHead:
    torch.manual_seed(0)
    return EagleHead(_CONFIG).double().requires_grad_(False)


def _inputs(n: int, batch: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    embeddings, features = torch.randn(2, batch, n, 24, generator=generator, dtype=torch.float64)
    return embeddings, features, torch.arange(n).expand(batch, n)


def _rotated(vector: Tensor, position: int) -> Tensor:
    """Turn each pair (i, i + half) of a head by its angle."""
    half, turned = len(vector) // 2, vector.clone()
    for i in range(half):
        angle = position * 10_000.0 ** (-2 * i / len(vector))
        a, b = float(vector[i]), float(vector[i + half])
        turned[i] = a * math.cos(angle) - b * math.sin(angle)
        turned[i + half] = b * math.cos(angle) + a * math.sin(angle)
    return turned


def _naive(weights: dict[str, Tensor], embeddings: Tensor, features: Tensor) -> Tensor:
    """One position, one head at a time."""

    def project(name: str, vector: Tensor) -> Tensor:
        result = weights[f"layers.0.{name}.weight"] @ vector
        return result + weights.get(f"layers.0.{name}.bias", torch.zeros_like(result))

    states = [
        weights["fc.weight"] @ torch.cat(pair) + weights["fc.bias"] for pair in zip(embeddings, features, strict=True)
    ]
    outputs = []
    for position, state in enumerate(states):
        heads = []
        for number in range(4):
            part, shared = slice(8 * number, 8 * number + 8), slice(8 * (number // 2), 8 * (number // 2) + 8)
            query = _rotated(project("self_attn.q_proj", state)[part], position)
            keys = [_rotated(project("self_attn.k_proj", s)[shared], t) for t, s in enumerate(states[: position + 1])]
            values = [project("self_attn.v_proj", s)[shared] for s in states[: position + 1]]
            weight = torch.stack([query @ key for key in keys]).div(math.sqrt(8)).softmax(0)
            heads.append(torch.stack(values).T @ weight)
        state = state + project("self_attn.o_proj", torch.cat(heads))
        scale = weights["layers.0.post_attention_layernorm.weight"]
        normed = state / (state.square().mean() + 1e-6).sqrt() * scale
        gate = project("mlp.gate_proj", normed)
        outputs.append(state + project("mlp.down_proj", gate * gate.sigmoid() * project("mlp.up_proj", normed)))
    return torch.stack(outputs)


def test_equals_a_naive_head(head: EagleHead) -> None:
    embeddings, features, positions = _inputs(6)
    predicted, _ = head(embeddings, features, positions)
    torch.testing.assert_close(predicted[0], _naive(head.state_dict(), embeddings[0], features[0]))


@pytest.mark.parametrize("cut", [1, 4, 8])
def test_cached_keys_change_nothing(head: EagleHead, cut: int) -> None:
    embeddings, features, positions = _inputs(9, batch=3)
    whole, keys_and_values = head(embeddings, features, positions)
    first, past = head(embeddings[:, :cut], features[:, :cut], positions[:, :cut])
    second, both = head(embeddings[:, cut:], features[:, cut:], positions[:, cut:], past=past)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(both, keys_and_values)


def test_a_mask_hides_keys(head: EagleHead) -> None:
    """Rows of a tree: the last two are siblings, each reads the first two and itself."""
    embeddings, features, _ = _inputs(4)
    positions = torch.tensor([[0, 1, 2, 2]])
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 0, 1]], dtype=torch.bool)[None, None]
    tree, _ = head(embeddings, features, positions, mask)
    for rows in ([0, 1, 2], [0, 1, 3]):
        chain, _ = head(embeddings[:, rows], features[:, rows], positions[:, rows])
        torch.testing.assert_close(tree[:, rows], chain)


@pytest.mark.parametrize("model", [toy_llama, toy_gemma2])
def test_is_as_wide_as_its_target(model: type) -> None:
    target = model()
    config = HeadConfig.for_target(target.config, target_weights_id="w", trained_by={"loss": "eagle2"})
    assert (config.hidden_size, config.intermediate_size, config.vocab_size) == (32, 48, 97)
    assert config.head_dim == (target.config.head_dim or 8)
    head = EagleHead(config)
    predicted, _ = head(torch.zeros(1, 2, 32), torch.zeros(1, 2, 32), torch.arange(2)[None])
    assert predicted.shape == (1, 2, 32)


def test_survives_json() -> None:
    config = HeadConfig.for_target(toy_llama().config, trained_by={"data": ["a"]}, feature_layers=(2,))
    assert HeadConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": "llama"}, "architecture is 'llama'"),
        ({"depth": 3}, "nobody knows depth"),
        ({"hidden_size": None}, "hidden_size"),
        ({"feature_layers": [1, -1]}, "one hidden state"),
    ],
)
def test_refuses_other_configurations(change: dict[str, object], message: str) -> None:
    values = {name: value for name, value in {**_CONFIG.to_json(), **change}.items() if value is not None}
    with pytest.raises(ConfigError, match=message):
        HeadConfig.from_json(values)
