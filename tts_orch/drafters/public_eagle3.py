"""Heads of EAGLE-3 as others publish them, in the layouts of EAGLE's authors and of `speculators`.

The former keep the layer under `midlayer.`, the latter under `layers.0.`, with its shape in `transformer_layer_config`. Hidden
states are numbered differently: `eagle_config.eagle_aux_hidden_state_layer_ids` counts outputs of layers from 0, the same name at
the top counts the embedding as 0, as we do. An embedding that is not a copy of the target's is the head's own.

Source: arXiv 2503.01840.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from torch import Tensor

from tts_orch.drafters.eagle3_head import Eagle3Head
from tts_orch.drafters.head_config import HeadConfig, low_middle_high
from tts_orch.drafters.rotary import known_scaling
from tts_orch.drafters.target_copies import is_embedding_of
from tts_orch.drafters.target_facts import TargetFacts
from tts_orch.drafters.vocabulary_maps import take_vocabulary
from tts_orch.drafters.weight_files import in_one_line
from tts_orch.errors import ConfigError

__all__ = ["is_eagle3", "public_eagle3"]

_LAYER: Final = "layers.0."
_OWN_LAYER: Final = "midlayer."
_MARK: Final = "hidden_norm.weight"
_EMBEDDING: Final = "embed_tokens.weight"
_OPTIONS: Final = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_UNUSED: Final = ("verifier_lm_head.weight", "verifier_norm.weight")
"""Copies of the target's, which only training needs."""


def is_eagle3(names: set[str]) -> bool:
    """Tell whether weights of these names are those of EAGLE-3."""
    return not names.isdisjoint({_LAYER + _MARK, _OWN_LAYER + _MARK})


def public_eagle3(
    file: Path, weights: Mapping[str, Tensor], config: Mapping[str, Any], target: TargetFacts
) -> Eagle3Head:
    """Make a head of what a folder holds.

    Args:
        file: of its weights, for messages.
        weights: by name.
        config: its `config.json`.
        target: of which it reads hidden states.

    Raises:
        ConfigError: the maps of its vocabulary disagree, or it does something that is not known here.
    """
    own = {_own_name(name): weight for name, weight in weights.items() if name not in _UNUSED}
    if _EMBEDDING in own and is_embedding_of(target, own[_EMBEDDING]):
        del own[_EMBEDDING]
    try:
        shape = _shape(file, own, config, target)
        head = Eagle3Head(shape, take_vocabulary(own, shape, file))
        head.load_state_dict(own)
    except (AttributeError, RuntimeError, TypeError) as error:
        raise ConfigError(
            f"{file}: not a head of EAGLE-3 of one Llama layer ({in_one_line(error)}); take one, or train it"
        ) from None
    return head


def _own_name(name: str) -> str:
    return _OWN_LAYER + name.removeprefix(_LAYER) if name.startswith(_LAYER) else name


def _shape(file: Path, weights: Mapping[str, Tensor], config: Mapping[str, Any], target: TargetFacts) -> HeadConfig:
    layer = {"hidden_act": "silu", **config.get("transformer_layer_config", config)}
    nested = config.get("eagle_config") or {}
    return HeadConfig.for_target(
        SimpleNamespace(**layer),
        architecture="eagle3",
        draft_vocab_size=config.get("draft_vocab_size"),
        feature_layers=_feature_layers(config, nested, target.n_layers),
        target_hidden_size=config.get("target_hidden_size"),
        attention_bias=f"{_OWN_LAYER}self_attn.q_proj.bias" in weights,
        has_embedding=_EMBEDDING in weights,
        rope_scaling=known_scaling(layer, file),
        trained_by={"published": file.parent.name},
        **{name: bool(config.get(name, nested.get(name, False))) for name in _OPTIONS},
    )


def _feature_layers(config: Mapping[str, Any], nested: Mapping[str, Any], n_layers: int) -> tuple[int, ...]:
    if numbers := config.get("eagle_aux_hidden_state_layer_ids"):
        return tuple(numbers)
    if numbers := nested.get("eagle_aux_hidden_state_layer_ids"):
        return tuple(number + 1 for number in numbers)
    return low_middle_high(n_layers)
