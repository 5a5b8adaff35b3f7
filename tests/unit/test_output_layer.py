"""Logits from final hidden states, as the model itself has them."""

import pytest
import torch
from torch import nn

from tests.toys import TOY_MODELS, toy_llama
from tts_orch.engine.output_layer import OutputLayer
from tts_orch.engine.stable import stabilise
from tts_orch.engine.threads import n_threads, set_threads
from tts_orch.errors import TargetError


@pytest.mark.parametrize("architecture", sorted(TOY_MODELS))
def test_logits_are_those_of_the_model(architecture: str) -> None:
    model = TOY_MODELS[architecture]()
    tokens = torch.arange(20)[None] % 90
    with torch.inference_mode():
        whole = model(tokens, output_hidden_states=True)
        torch.testing.assert_close(OutputLayer.checked(model)(whole.hidden_states[-1]), whole.logits)


def test_a_model_that_does_more_to_its_logits_is_refused() -> None:
    model = TOY_MODELS["llama"]()
    forward = model.forward

    def sharper(*arguments: object, **keywords: object) -> object:
        output = forward(*arguments, **keywords)
        output.logits = output.logits * 2
        return output

    model.forward = sharper  # type: ignore[method-assign]
    with pytest.raises(TargetError, match="toy: its logits are not those"):
        OutputLayer.checked(model, "toy")


_TOKENS = torch.tensor([0, 3, 31, 32, 33, 64, 96])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("architecture", sorted(TOY_MODELS))
def test_columns_of_some_tokens_are_those_of_all(architecture: str, dtype: torch.dtype) -> None:
    """Soft caps, scales and shared embeddings among the toys."""
    layer = OutputLayer(TOY_MODELS[architecture](dtype))
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    with torch.inference_mode():
        some = layer.of_tokens(_TOKENS)(states)
        torch.testing.assert_close(
            some, layer(states)[:, _TOKENS], rtol=1e-2 if dtype == torch.bfloat16 else 1e-9, atol=1e-2
        )
    assert some.shape == (5, 7)
    assert some.dtype == dtype


def test_biases_go_with_their_rows() -> None:
    model = toy_llama()
    model.lm_head = nn.Linear(32, 97).double()
    layer = OutputLayer(model)
    states = torch.randn(5, 32).double()
    torch.testing.assert_close(layer.of_tokens(_TOKENS)(states), layer(states)[:, _TOKENS])


def test_bit_stable_layers_give_the_same_bits() -> None:
    model, threads = toy_llama(torch.float32), n_threads()
    stabilise(model)
    set_threads(threads)  # the kernels leave torch one
    layer = OutputLayer(model)
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(0))
    assert torch.equal(layer.of_tokens(_TOKENS)(states), layer(states)[:, _TOKENS])


def test_layers_that_keep_their_weights_elsewhere_are_refused() -> None:
    class Packed(nn.Linear):
        """Stands for a quantised layer."""

    model = toy_llama()
    model.lm_head = Packed(32, 97)
    with pytest.raises(TargetError, match=r"toy: rows of its output layer \(Packed\) cannot be chosen"):
        OutputLayer(model, "toy").of_tokens(_TOKENS)
