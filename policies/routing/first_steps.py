"""Routing by the first steps: who was surest in these drafts the rest, and now and then all are compared again.

Source: ours; what the routing of arXiv 2603.27027 can be without hindsight and without drafting everything all the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing, surest
from tts_orch.policies.routing.standings import Standings

__all__ = ["FirstStepsRouting"]


@dataclass(slots=True)
class _Trajectory:
    standings: Standings
    n_since: int = 0  # steps since the members were compared


class FirstStepsRouting(Routing):
    """Compares all members in a trajectory's first steps, and keeps to the leader.

    Args:
        members: as in `Routing`.
        n_steps: steps in which all members draft, and that the standings are about.
        probe_every: the leader's steps before the members are compared once more; the newest comparison takes the place of
            the oldest.
    """

    def __init__(self, members: Sequence[str], n_steps: int, probe_every: int) -> None:
        super().__init__(members)
        self._n_steps = n_steps
        self._probe_every = probe_every
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory without standings."""
        self._trajectories[start.trajectory] = _Trajectory(Standings(self._n_steps))

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return the leader, or all members to find one."""
        known = self._trajectories[trajectory]
        leader = known.standings.leader(members)
        return members if leader is None or known.n_since >= self._probe_every else (leader,)

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the surest tree."""
        known = self._trajectories[trajectory]
        known.n_since += 1
        if len(drafts) > 1:
            known.standings.add(drafts)
            known.n_since = 0
        return surest(drafts)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        self._trajectories.pop(trajectory, None)
