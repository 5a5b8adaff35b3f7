"""The shape of a draft head, whom it drafts for, and how it was trained: what `config.json` of its folder says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from tts_orch.engine.model_options import context_limit
from tts_orch.errors import ConfigError

__all__ = ["LAST_HIDDEN_STATE", "HeadConfig", "low_middle_high"]

LAST_HIDDEN_STATE: Final = (-1,)
"""The feature of EAGLE-2 and HASS: what the target's LM head reads."""

_ARCHITECTURES: Final = ("eagle", "eagle3")
_FEWEST_LAYERS: Final = 7  # for three different ones
_MLP_WIDTHS: Final = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_ACTIVATIONS: Final = ("hidden_act", "hidden_activation", "activation_function", "activation")


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """A head of one decoder layer on the target's features.

    Attributes:
        architecture: `eagle` (EAGLE-2, arXiv 2406.16858; HASS, arXiv 2408.15766) or `eagle3` (arXiv 2503.01840).
        hidden_size: `d`; for `eagle` that of the target.
        intermediate_size: width of the gated MLP.
        num_attention_heads: heads of the queries,
        num_key_value_heads: and of keys and values.
        head_dim: width of a head.
        rms_norm_eps: of the norm before the MLP.
        rope_theta: base of the rotary positions.
        rope_scaling: how these are scaled, as `rope_scaling` of transformers says it: `linear` or `llama3`; None if not.
        hidden_act: activation of the MLP, by its name in transformers.
        attention_bias: whether queries, keys and values have biases.
        vocab_size: rows of the target's embedding.
        draft_vocab_size: tokens that it may propose; None for all of the target's.
        feature_layers: the hidden states of the target that it continues, see `Drafter.feature_layers`; `eagle` takes one.
        max_context: longest trajectory, in tokens, that it continues.
        target_weights_id: of the target that it was trained for, "" if nobody knows.
        target_tokenizer_id: the same for the tokenizer.
        trained_by: recipe, data and loss, for people.

    Attributes of `eagle3` alone, false or None as its paper has it:
        target_hidden_size: width of the target's hidden states where it is another one than `hidden_size`.
        has_embedding: whether it has an embedding of its own, and does not read the target's.
        norm_before_residual: whether what is added to the attention's output is the feature behind its norm.
        norm_before_fc: whether a norm of all hidden states together stands before their projection,
        fc_norm: or one of each.
        norm_output: whether what is fed back is the output behind the last norm.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    architecture: str = "eagle"
    draft_vocab_size: int | None = None
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: Mapping[str, Any] | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    feature_layers: tuple[int, ...] = LAST_HIDDEN_STATE
    max_context: int = 2048
    target_weights_id: str = ""
    target_tokenizer_id: str = ""
    trained_by: Mapping[str, Any] = field(default_factory=dict)
    target_hidden_size: int | None = None
    has_embedding: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    @property
    def feature_size(self) -> int:
        """Width of one hidden state of the target."""
        return self.target_hidden_size or self.hidden_size

    @classmethod
    def for_target(cls, text_config: Any, *, architecture: str = "eagle", **settings: Any) -> HeadConfig:
        """Return the configuration of a head as wide as one layer of its target.

        Where the target says nothing of its MLP, that of the head is four times as wide as a state, as is usual.

        Args:
            text_config: the target's, of transformers.
            architecture: of the head; `eagle3` reads hidden states of three layers.
            settings: fields that are to differ.
        """
        rope = getattr(text_config, "rope_parameters", None) or {}
        n_heads = text_config.num_attention_heads
        values = {
            "hidden_size": text_config.hidden_size,
            "intermediate_size": _first(text_config, _MLP_WIDTHS) or 4 * text_config.hidden_size,
            "num_attention_heads": n_heads,
            "num_key_value_heads": getattr(text_config, "num_key_value_heads", None) or n_heads,
            "head_dim": getattr(text_config, "head_dim", None) or text_config.hidden_size // n_heads,
            "vocab_size": text_config.vocab_size,
            "architecture": architecture,
            "rms_norm_eps": getattr(text_config, "rms_norm_eps", 1e-6),
            "rope_theta": rope.get("rope_theta") or getattr(text_config, "rope_theta", None) or 10_000.0,
            "hidden_act": _first(text_config, _ACTIVATIONS) or "silu",
            "max_context": context_limit(text_config),
        }
        if architecture == "eagle3" and "feature_layers" not in settings:
            values["feature_layers"] = low_middle_high(text_config.num_hidden_layers)
        return cls(**{**values, **settings})

    def to_json(self) -> dict[str, Any]:
        """Return what `config.json` holds."""
        return {**asdict(self), "feature_layers": list(self.feature_layers)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], place: str = "config.json") -> HeadConfig:
        """Read what `to_json` returned.

        Args:
            values: by name.
            place: where they come from, for messages.

        Raises:
            ConfigError: it is the configuration of something else, or incomplete.
        """
        if values.get("architecture") not in _ARCHITECTURES:
            raise ConfigError(
                f"{place}: architecture is {values.get('architecture')!r}, not 'eagle' or 'eagle3'; give a draft head's"
            )
        try:
            unknown = sorted(values.keys() - {one.name for one in fields(cls)})
            if unknown:
                raise TypeError(f"nobody knows {', '.join(unknown)}")
            config = cls(**{**values, "feature_layers": tuple(values.get("feature_layers", LAST_HIDDEN_STATE))})
            if config.architecture == "eagle" and len(config.feature_layers) != 1:
                raise TypeError(f"it continues one hidden state, not {len(config.feature_layers)}")
            return config
        except TypeError as error:
            raise ConfigError(
                f"{place}: not the configuration of a draft head ({error}); train or fetch it again"
            ) from None


def _first(text_config: Any, names: Sequence[str]) -> Any:
    """Return what a configuration says under the first of the names that architectures have for it; None if nothing."""
    return next((value for name in names if (value := getattr(text_config, name, None)) is not None), None)


def low_middle_high(n_layers: int) -> tuple[int, ...]:
    """Return the hidden states of a target that heads of EAGLE-3 read, unless they say otherwise.

    Small targets, whose low and high ones would be the same, give the three in the middle, and the last one where even
    these are fewer.
    """
    if n_layers < _FEWEST_LAYERS:
        middle = n_layers // 2
        return (middle - 1, middle, middle + 1) if n_layers > 2 else (*range(n_layers), -1)
    return (2, n_layers // 2, n_layers - 3)
