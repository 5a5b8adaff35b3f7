"""Routing by confidence: in every step all members draft, and the surest tree is verified.

Source: arXiv 2603.27027, whose published figures choose once a question and with hindsight; this chooses before every pass.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing, surest

__all__ = ["ConfidenceRouting"]


class ConfidenceRouting(Routing):
    """Verifies the tree with the larger confidence; drafting costs as much as that of all members."""

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return all of them."""
        return members

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the surest tree."""
        return surest(drafts)
