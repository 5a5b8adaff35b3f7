"""Routing by entropy: the member whose first tree comes from the narrowest laws drafts the whole trajectory.

Source: arXiv 2603.27027, which finds that it tells domains apart far worse than confidence does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing
from tts_orch.policies.routing.tree_confidence import mean_entropy

__all__ = ["EntropyRouting"]


class EntropyRouting(Routing):
    """Chooses once a trajectory, in the first step in which any member drafts something, and anew only if that one rests."""

    def __init__(self, members: Sequence[str]) -> None:
        super().__init__(members)
        self._chosen: dict[TrajectoryId, str] = {}

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return the chosen member, or all to choose one: in the beginning, and when the chosen one rests."""
        chosen = self._chosen.get(trajectory)
        return (chosen,) if chosen is not None and chosen in members else members

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the tree with the smallest mean entropy, of equals the first."""
        entropies = {member: mean_entropy(tree) for member, tree in drafts.items()}
        chosen = min(entropies, key=lambda member: entropies[member])
        if entropies[chosen] < math.inf:
            self._chosen[trajectory] = chosen
        return drafts[chosen]

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        self._chosen.pop(trajectory, None)
