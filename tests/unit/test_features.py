"""Features in the pages are the stock model's hidden states, and cost the logits not a bit."""

from __future__ import annotations

import pytest
import torch

from tests.exactness.decoding import prompt, toy_target
from tests.toys import TOY_MODELS, toy_llama
from tts_orch.engine.kv_pages import KVPages
from tts_orch.engine.packing import PAGE, Entry, pack
from tts_orch.engine.target import Target
from tts_orch.errors import TargetError

_TOKENS = prompt(100)
_LAYERS = (0, 1, -1)


def _prefill(target: Target, pages: KVPages) -> torch.Tensor:
    parts = [
        target.forward(pack([Entry(_TOKENS[first : first + 30], first, [0, 1])]), pages) for first in range(0, 100, 30)
    ]
    return torch.cat(parts)


@pytest.mark.parametrize("architecture", sorted(TOY_MODELS))
def test_features_are_the_hidden_states_of_the_stock_model(architecture: str) -> None:
    target = toy_target(architecture)
    pages = target.new_pages(2, _LAYERS)
    _prefill(target, pages)
    stock, read_by_head = TOY_MODELS[architecture](), []
    stock.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: read_by_head.append(inputs[0][0]))
    states = stock(input_ids=torch.from_numpy(_TOKENS).long()[None], output_hidden_states=True).hidden_states
    expected = torch.cat([states[layer][0] for layer in _LAYERS], dim=-1)
    torch.testing.assert_close(pages.read_features([0, 1], 0, 100), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(expected[:, -target.hidden_size :], read_by_head[0])


@pytest.mark.parametrize("numerics", ["bitwise", "fast"])
def test_logits_are_the_same_bits_with_and_without_features(numerics: str) -> None:
    target = Target(toy_llama(torch.float32), numerics=numerics)
    assert target.numerics == numerics
    with_features, without = target.new_pages(2, _LAYERS), target.new_pages(2)
    assert torch.equal(_prefill(target, with_features), _prefill(target, without))
    assert torch.equal(with_features._storage, without._storage)


def test_memory_for_features_is_counted() -> None:
    target = toy_target()
    plain, pages = target.bytes_per_page(), target.new_pages(2, _LAYERS)
    assert pages.bytes_per_page == target.bytes_per_page(_LAYERS) == plain + PAGE * 3 * target.hidden_size * 8


@pytest.mark.parametrize("layer", [2, -2])
def test_a_layer_that_there_is_not_is_refused(layer: int) -> None:
    with pytest.raises(TargetError, match=f"layer {layer}, only 0 .embeddings. to 1 and -1"):
        toy_target().new_pages(2, (layer,))
