"""Settings of the rules that end sampling before all candidates are drawn, or that choose which of them may vote."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from tts_orch.settings import Settings

__all__ = [
    "AdaptiveConsistency",
    "DeepConf",
    "DeepConfOffline",
    "DrawingOrder",
    "EarlyStopping",
    "SequentialRule",
    "StoppingConfig",
    "TraceScore",
]

DrawingOrder: TypeAlias = Literal["index", "completion"]
TraceScore: TypeAlias = Literal["mean", "tail", "bottom", "lowest"]


class SequentialRule(Settings):
    """A rule that looks at the candidates one after the other, while more are being sampled."""

    in_flight: int = Field(4, ge=1)
    """Candidates sampled at once, the first one without a verdict among them; what was begun beyond the stop is cancelled."""
    order: DrawingOrder = "index"
    """`index` judges candidates by their number, so a seed fixes where it stops; `completion` as they end: no waiting, but
    the stop depends on the machine and favours the answers of short or quickly drafted candidates."""

    @property
    def n_at_once(self) -> int:
        """Candidates that are open at once."""
        return self.in_flight


class AdaptiveConsistency(SequentialRule):
    """Stop when the leading answer is probably the one that most candidates would give."""

    name: Literal["adaptive_consistency"] = "adaptive_consistency"
    rule: Literal["beta", "dirichlet"] = "beta"
    """Compare the leading answer with the second one alone, or with all others."""
    threshold: float = Field(0.95, gt=0, lt=1)
    """Probability of the leading answer at which sampling stops."""


class EarlyStopping(SequentialRule):
    """Stop when a whole window of candidates agrees, and take their answer."""

    name: Literal["esc"] = "esc"
    window: int = Field(5, ge=2)
    """Candidates that must agree."""


class _ConfidenceRule(Settings):
    confidence_window: int = Field(2048, ge=1)
    """Tokens over which confidence is averaged; a shorter candidate is one window."""
    keep_percent: float = Field(90.0, gt=0, le=100)
    """Share of candidates, the most confident ones, that may vote. A small share finds more, and is wrong more often where
    the target is confidently wrong."""


class DeepConf(SequentialRule, _ConfidenceRule):
    """Learn from the first candidates how confident one must stay, cut the others where they do not, stop at a consensus."""

    name: Literal["deepconf"] = "deepconf"
    warm_up: int = Field(16, ge=1)
    """Candidates that are sampled whole."""
    consensus: float = Field(0.95, gt=0, le=1)
    """Share of the votes for one answer at which sampling stops."""

    @property
    def n_at_once(self) -> int:
        """Candidates that are open at once: the first ones all together."""
        return max(self.warm_up, self.in_flight)


class DeepConfOffline(_ConfidenceRule):
    """Sample all candidates, and let the most confident ones vote, weighted by confidence."""

    name: Literal["deepconf_offline"] = "deepconf_offline"
    trace_score: TraceScore = "lowest"
    """Confidence of a candidate: mean over all tokens, over the last window, over the lowest tenth of its windows, or its
    lowest window."""


StoppingConfig: TypeAlias = Annotated[
    AdaptiveConsistency | EarlyStopping | DeepConf | DeepConfOffline, Field(discriminator="name")
]
