"""Logits from final hidden states, as the model itself has them."""

import pytest
import torch

from tests.toys import TOY_MODELS
from tts_orch.engine.output_layer import OutputLayer
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
