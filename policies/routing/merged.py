"""Routing that routes nothing: all members draft, and one pass verifies the union of their trees.

Source: arXiv 2603.27027; see `merged_tree`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId
from tts_orch.policies.routing.merged_tree import merged_tree
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing

__all__ = ["ConcatenatedRouting", "MergedRouting"]


class MergedRouting(Routing):
    """Verifies the best nodes of all trees, as many as one tree might have."""

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return all of them."""
        return members

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the best `n_nodes` nodes of the union."""
        return merged_tree(list(drafts.values()), n_nodes)


class ConcatenatedRouting(MergedRouting):
    """Verifies every node of all trees; each member may draft its share of a trajectory's nodes."""

    splits_nodes = True
