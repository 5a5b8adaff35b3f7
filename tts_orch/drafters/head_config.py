"""The shape of a draft head, whom it drafts for, and how it was trained: what `config.json` of its folder says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

from tts_orch.engine.model_options import context_limit
from tts_orch.errors import ConfigError

__all__ = ["LAST_HIDDEN_STATE", "HeadConfig"]

LAST_HIDDEN_STATE: Final = (-1,)
"""The feature of EAGLE-2 and HASS: what the target's LM head reads."""


@dataclass(frozen=True, slots=True)
class HeadConfig:
    """A head of one decoder layer on the target's features (EAGLE-2, arXiv 2406.16858; HASS, arXiv 2408.15766).

    Attributes:
        hidden_size: `d`, that of the target.
        intermediate_size: width of the gated MLP.
        num_attention_heads: heads of the queries,
        num_key_value_heads: and of keys and values.
        head_dim: width of a head.
        rms_norm_eps: of the norm before the MLP.
        rope_theta: base of the rotary positions.
        hidden_act: activation of the MLP, by its name in transformers.
        attention_bias: whether queries, keys and values have biases.
        vocab_size: rows of the target's embedding.
        feature_layers: the hidden state of the target that it continues, see `Drafter.feature_layers`; one.
        max_context: longest trajectory, in tokens, that it continues.
        target_weights_id: of the target that it was trained for, "" if nobody knows.
        target_tokenizer_id: the same for the tokenizer.
        trained_by: recipe, data and loss, for people.
    """

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10_000.0
    hidden_act: str = "silu"
    attention_bias: bool = False
    feature_layers: tuple[int, ...] = LAST_HIDDEN_STATE
    max_context: int = 2048
    target_weights_id: str = ""
    target_tokenizer_id: str = ""
    trained_by: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def for_target(cls, text_config: Any, **settings: Any) -> HeadConfig:
        """Return the configuration of a head as wide as one layer of its target.

        Args:
            text_config: the target's, of transformers.
            settings: fields that are to differ.
        """
        rope = getattr(text_config, "rope_parameters", None) or {}
        n_heads = text_config.num_attention_heads
        values = {
            "hidden_size": text_config.hidden_size,
            "intermediate_size": text_config.intermediate_size,
            "num_attention_heads": n_heads,
            "num_key_value_heads": getattr(text_config, "num_key_value_heads", None) or n_heads,
            "head_dim": getattr(text_config, "head_dim", None) or text_config.hidden_size // n_heads,
            "vocab_size": text_config.vocab_size,
            "rms_norm_eps": getattr(text_config, "rms_norm_eps", 1e-6),
            "rope_theta": rope.get("rope_theta") or getattr(text_config, "rope_theta", None) or 10_000.0,
            "hidden_act": getattr(text_config, "hidden_act", None) or text_config.hidden_activation,
            "max_context": context_limit(text_config),
        }
        return cls(**{**values, **settings})

    def to_json(self) -> dict[str, Any]:
        """Return what `config.json` holds."""
        return {"architecture": "eagle", **asdict(self), "feature_layers": list(self.feature_layers)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], place: str = "config.json") -> HeadConfig:
        """Read what `to_json` returned.

        Args:
            values: by name.
            place: where they come from, for messages.

        Raises:
            ConfigError: it is the configuration of something else, or incomplete.
        """
        if values.get("architecture") != "eagle":
            raise ConfigError(
                f"{place}: architecture is {values.get('architecture')!r}, not 'eagle'; give a draft head's"
            )
        known = {one.name for one in fields(cls)}
        own = {name: value for name, value in values.items() if name != "architecture"}
        try:
            unknown = sorted(own.keys() - known)
            if unknown:
                raise TypeError(f"nobody knows {', '.join(unknown)}")
            config = cls(**{**own, "feature_layers": tuple(own.get("feature_layers", LAST_HIDDEN_STATE))})
            if len(config.feature_layers) != 1:
                raise TypeError(f"it continues one hidden state, not {len(config.feature_layers)}")
            return config
        except TypeError as error:
            raise ConfigError(
                f"{place}: not the configuration of a draft head ({error}); train or fetch it again"
            ) from None
