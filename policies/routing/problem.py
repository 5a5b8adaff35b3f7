"""Routing by problem: a trajectory keeps the member that a router assigned, else the one that its problem's others showed best.

Source: ours; the choice of arXiv 2603.27027 is by question too, but known only when the question has been answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing, surest
from tts_orch.policies.routing.standings import Standings

__all__ = ["ProblemRouting"]


@dataclass(frozen=True, slots=True)
class _Trajectory:
    standings: Standings
    assigned: str | None


class ProblemRouting(Routing):
    """One member a problem; a problem is known by the scope of its trajectories.

    Args:
        members: as in `Routing`.
        n_steps: steps of any of a problem's trajectories in which all members draft, unless one was assigned.
    """

    def __init__(self, members: Sequence[str], n_steps: int) -> None:
        super().__init__(members)
        self._n_steps = n_steps
        self._standings: dict[str, Standings] = {}
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory; an assignment to an unknown member, removed meanwhile perhaps, counts for none."""
        standings = self._standings.setdefault(start.scope, Standings(self._n_steps))
        assigned = start.drafter if start.drafter in self.members else None
        self._trajectories[start.trajectory] = _Trajectory(standings, assigned)

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return the member of the problem, or all to find one; while the assigned one rests it is as if there were none."""
        known = self._trajectories[trajectory]
        chosen = known.assigned if known.assigned in members else known.standings.leader(members)
        return members if chosen is None else (chosen,)

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the surest tree."""
        if len(drafts) > 1:
            self._trajectories[trajectory].standings.add(drafts)
        return surest(drafts)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; the standings of its problem stay."""
        self._trajectories.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Forget the standings of a problem."""
        self._standings.pop(scope, None)
