"""Routings by name."""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.config import DraftingConfig
from tts_orch.policies.routing.confidence import ConfidenceRouting
from tts_orch.policies.routing.entropy import EntropyRouting
from tts_orch.policies.routing.expected_tokens import ExpectedTokensRouting
from tts_orch.policies.routing.first_steps import FirstStepsRouting
from tts_orch.policies.routing.merged import ConcatenatedRouting, MergedRouting
from tts_orch.policies.routing.problem import ProblemRouting
from tts_orch.policies.routing.routing import Routing

__all__ = ["make_routing"]


def make_routing(config: DraftingConfig, members: Sequence[str]) -> Routing:
    """Return the routing that the settings choose, between these members."""
    match config.chosen_routing:
        case "confidence":
            return ConfidenceRouting(members)
        case "first_steps":
            return FirstStepsRouting(members, config.routing_steps, config.routing_probe_every)
        case "problem":
            return ProblemRouting(members, config.routing_steps)
        case "entropy":
            return EntropyRouting(members)
        case "merged":
            return MergedRouting(members)
        case "concatenated":
            return ConcatenatedRouting(members)
        case "expected_tokens":
            return ExpectedTokensRouting(members, config.routing_steps, config.routing_probe_every)
