"""A model cut down to the layers below a hidden state: nothing is computed that nobody reads."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

from tts_orch.errors import ConfigError

__all__ = ["checked_layer", "cut_to_layer"]


def cut_to_layer(model: PreTrainedModel, layer: int) -> PreTrainedModel:
    """Make a model's `last_hidden_state` the hidden states of one of its layers.

    Args:
        model: without its output layer; it is changed.
        layer: as transformers numbers `hidden_states`: 0 are the embeddings, -1 is the last layer's output, normalised.

    Raises:
        ConfigError: it has no such layer, or its layers cannot be told.
    """
    text = model.config.get_text_config()
    kept = checked_layer(model, layer)
    if kept < text.num_hidden_layers:
        layers = getattr(model, "layers", None)
        if not (isinstance(layers, nn.ModuleList) and hasattr(model, "norm")):
            raise ConfigError(f"layer: {type(model).__name__} can be read behind its last layer only; give -1")
        model.layers = layers[:kept]
        model.norm = nn.Identity()
        text.num_hidden_layers = kept
    return model


def checked_layer(model: PreTrainedModel, layer: int) -> int:
    """Return the number of a layer's hidden states, counted from the embeddings.

    Raises:
        ConfigError: the model has no such layer.
    """
    n_layers: int = model.config.get_text_config().num_hidden_layers
    number = layer if layer >= 0 else n_layers + 1 + layer
    if not 0 <= number <= n_layers:
        raise ConfigError(
            f"layer: the model has hidden states {-n_layers - 1} to {n_layers}, not {layer}; choose one of them"
        )
    return number
