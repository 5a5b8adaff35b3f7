"""Heads of EAGLE-3 in the layouts of others draft like our own; what they do that is not known here is refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tests.neural_toys import PUBLISHED_LAYER, SOME_IDS, draft_vocabulary, toy_facts
from tests.toys import toy_llama
from tts_orch.drafters.checkpoint import load_network
from tts_orch.drafters.draft_network import HeadNetwork
from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.eagle_network import Eagle3Network
from tts_orch.drafters.folder_check import check_drafter
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.drafters.rotary import rotation
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.drafters.vocabulary_maps import map_weights
from tts_orch.errors import ConfigError
from tts_orch.vocabulary.draft_vocabulary import DraftVocabulary

Weights = dict[str, Tensor]
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
_LAYER = {
    "model_type": "llama",
    **PUBLISHED_LAYER,
}


@cache
def _facts() -> TargetFacts:
    return toy_facts()


def _head(vocabulary: DraftVocabulary | None = None, **options: Any) -> Eagle3Head:
    torch.manual_seed(0)
    size = None if vocabulary is None else vocabulary.size
    config = HeadConfig.for_target(toy_llama().config, architecture="eagle3", draft_vocab_size=size, **options)
    head = Eagle3Head(config, vocabulary)
    with torch.no_grad():
        for name, weight in head.named_parameters():
            weight.copy_(torch.randn(weight.shape) * 0.2 + ("norm" in name))
    return head


def _publish(
    folder: Path,
    head: Eagle3Head,
    layout: str,
    *,
    change: Callable[[Weights], object] = lambda weights: None,
    **settings: Any,
) -> None:
    """Write a head as others do, in the layout of EAGLE's authors (`authors`) or of `speculators`."""
    weights: Weights = {name: weight.detach().clone() for name, weight in head.state_dict().items()}
    weights |= map_weights(head.vocabulary)
    layer, config = dict(_LAYER), {"draft_vocab_size": head.config.draft_vocab_size}
    if layout == "authors":
        config |= {"architectures": ["LlamaForCausalLMEagle3"], **layer}
    else:
        weights = {name.replace("midlayer.", "layers.0."): weight for name, weight in weights.items()}
        weights["verifier_norm.weight"] = torch.ones(32)
        config |= {"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3"}
        config |= {"transformer_layer_config": layer}
    change(weights)
    for name, value in settings.items():
        (layer if layout != "authors" and name in ("rope_scaling", "vocab_size") else config)[name] = value
    (folder / "config.json").write_text(json.dumps(config))
    if layout == "authors":
        torch.save(weights, folder / "pytorch_model.bin")
    else:
        save_file(weights, folder / "model.safetensors")


def _answer(network: HeadNetwork) -> Tensor:
    """Return logits of a few rows."""
    n_inputs = len(network.feature_layers) * _facts().hidden_size
    tokens, hidden = torch.arange(3, 8)[None], torch.linspace(-1, 1, 5 * n_inputs).view(1, 5, -1)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()[None, None]
    with torch.inference_mode():
        features = network.project(hidden.to(network.dtype))
        return network.logits(network.read(tokens, features, torch.arange(5)[None], mask, [])[0][0])


def _assert_drafts_like(folder: Path, head: Eagle3Head) -> None:
    network = load_network(folder, _facts())
    assert network.vocabulary == head.vocabulary
    torch.testing.assert_close(_answer(network), _answer(Eagle3Network(head, _facts())))


@pytest.mark.parametrize("layout", ["authors", "speculators"])
@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({}, {}),
        ({"norm_before_residual": True}, {"norm_before_residual": True, "eagle_config": None}),
        ({"norm_before_fc": True}, {"eagle_config": {"norm_before_fc": True, "eagle_aux_hidden_state_layer_ids": []}}),
        ({"fc_norm": True, "norm_output": True}, {"fc_norm": True, "norm_output": True}),
        ({"rope_scaling": _LLAMA3, "attention_bias": True}, {"rope_scaling": _LLAMA3}),
    ],
)
def test_published_heads_draft_like_own_ones(
    tmp_path: Path, layout: str, options: dict[str, Any], settings: dict[str, Any]
) -> None:
    head = _head(draft_vocabulary(SOME_IDS), **options)
    _publish(tmp_path, head, layout, **settings)
    _assert_drafts_like(tmp_path, head)
    kind = "eagle3" if layout == "speculators" else "llama"
    assert check_drafter("math", tmp_path, "toy").startswith(f"{kind}, 0.1 MiB")


def test_heads_of_all_tokens_need_no_maps(tmp_path: Path) -> None:
    head = _head()
    _publish(tmp_path, head, "authors", draft_vocab_size=97)
    _assert_drafts_like(tmp_path, head)


@pytest.mark.parametrize("layout", ["authors", "speculators"])
def test_copies_of_the_embedding_are_dropped_and_others_read(tmp_path: Path, layout: str) -> None:
    head = _head(draft_vocabulary(SOME_IDS))
    copied = {"embed_tokens.weight": _facts().embedding.half().contiguous()}
    _publish(tmp_path, head, layout, change=lambda weights: weights.update(copied))
    _assert_drafts_like(tmp_path, head)
    own = _head(draft_vocabulary(SOME_IDS), has_embedding=True)
    _publish(tmp_path, own, layout)
    _assert_drafts_like(tmp_path, own)
    plain = _answer(load_network(tmp_path, _facts()))
    assert own.embed_tokens is not None
    own.embed_tokens.weight.mul_(-1)
    assert not torch.allclose(_answer(Eagle3Network(own, _facts())), plain)


def test_narrower_heads_read_the_targets_hidden_states(tmp_path: Path) -> None:
    shape = {"hidden_size": 16, "target_hidden_size": 32, "has_embedding": True, "head_dim": 4}
    head = _head(draft_vocabulary(SOME_IDS), **shape)
    _publish(tmp_path, head, "authors", hidden_size=16, target_hidden_size=32, head_dim=4)
    _assert_drafts_like(tmp_path, head)
    _publish(
        tmp_path,
        head,
        "authors",
        change=lambda weights: weights.pop("embed_tokens.weight"),
        hidden_size=16,
        target_hidden_size=32,
        head_dim=4,
    )
    with pytest.raises(ConfigError, match="without embed_tokens of its own"):
        load_network(tmp_path, _facts())


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        ({}, (0, 1, -1)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 0, -1]}, (1, 0, -1)),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [-1, 0, 0]}}, (0, 1, 1)),
    ],
)
def test_layouts_number_hidden_states_in_their_ways(
    tmp_path: Path, settings: dict[str, Any], layers: tuple[int, ...]
) -> None:
    _publish(tmp_path, _head(draft_vocabulary(SOME_IDS)), "authors", **settings)
    assert load_network(tmp_path, _facts()).feature_layers == layers


def test_columns_of_padding_are_dropped(tmp_path: Path) -> None:
    """Whatever a target cannot draw is no draft."""
    head = _head(draft_vocabulary((5, 60, 90, 95, 96)))
    _publish(tmp_path, head, "authors")
    network = load_network(tmp_path, replace(_facts(), vocab_size=95))
    assert network.vocabulary is not None
    assert network.vocabulary.ids.tolist() == [5, 60, 90]
    torch.testing.assert_close(_answer(network), _answer(Eagle3Network(head, _facts()))[:, :3])


@pytest.mark.parametrize("layout", ["authors", "speculators"])
@pytest.mark.parametrize(
    ("change", "settings", "message"),
    [
        (lambda weights: weights.pop("t2d"), {}, "without t2d"),
        (lambda weights: weights["d2t"].add_(1), {}, "t2d does not mark|the target has 97"),
        (lambda weights: weights.update(d2t=torch.zeros_like(weights["d2t"])), {}, "t2d does not mark"),
        (lambda weights: weights["t2d"].logical_not_(), {}, "t2d marks"),
        (lambda weights: None, {"draft_vocab_size": 30}, "maps of 32 tokens, but draft_vocab_size is 30"),
        (lambda weights: None, {"draft_vocab_size": None}, "maps of 32 tokens, but draft_vocab_size is None"),
        (lambda weights: weights.update(mask_hidden=torch.zeros(1, 96)), {}, "not a head of EAGLE-3.*mask_hidden"),
        (lambda weights: weights.pop("norm.weight"), {}, r"not a head of EAGLE-3.*norm\.weight"),
        (lambda weights: None, {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "by 'yarn'"),
        (lambda weights: None, {"rope_scaling": {"rope_type": "llama3", "factor": 4.0}}, "by 'llama3'"),
        (lambda weights: None, {"fc_norm": True}, r"not a head of EAGLE-3.*fc_norm\.0"),
        (lambda weights: None, {"eagle_aux_hidden_state_layer_ids": [0, 1]}, r"not a head of EAGLE-3.*fc\.weight"),
        (lambda weights: None, {"eagle_aux_hidden_state_layer_ids": [0, 1, 2]}, "not layers of this target"),
    ],
)
def test_refuses_what_it_does_not_know(
    tmp_path: Path, layout: str, change: Callable[[Weights], object], settings: dict[str, Any], message: str
) -> None:
    _publish(tmp_path, _head(draft_vocabulary(SOME_IDS)), layout, change=change, **settings)
    with pytest.raises(ConfigError, match=message) as caught:
        load_network(tmp_path, _facts())
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("layout", ["authors", "speculators"])
def test_refuses_heads_of_targets_of_another_size(tmp_path: Path, layout: str) -> None:
    ids = np.array(SOME_IDS, np.int64)
    for size in (96 + 5, 97):
        head = _head(DraftVocabulary(ids, size), vocab_size=size)
        _publish(tmp_path, head, layout, vocab_size=size)
        if size == 97:
            assert load_network(tmp_path, _facts())
            continue
        with pytest.raises(ConfigError, match="vocab_size is 101, the target has 97 tokens"):
            load_network(tmp_path, _facts())


@pytest.mark.parametrize("scaling", [_LLAMA3, {"rope_type": "linear", "factor": 4.0}])
def test_scaled_positions_are_those_of_transformers(scaling: dict[str, Any]) -> None:
    parameters = {**scaling, "rope_theta": 10000.0}
    model = LlamaConfig(hidden_size=64, num_attention_heads=1, rope_parameters=parameters, max_position_embeddings=512)
    frequencies, _ = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](model, torch.device("cpu"))
    config = HeadConfig.for_target(model, architecture="eagle3", rope_scaling=scaling, vocab_size=9)
    cosines, _ = rotation(config, torch.arange(300)[None], torch.float32)
    expected = (torch.arange(300)[:, None] * frequencies).cos()
    torch.testing.assert_close(cosines[0, 0], expected, rtol=1e-3, atol=1e-3)
