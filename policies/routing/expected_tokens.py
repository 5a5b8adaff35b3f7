"""Routing by speed: the members, or all of them together, that promise most tokens per second of drafting and verifying.

Members may differ in kind: a table look-up drafts for nothing and is often wrong, a network drafts well and takes its time.

Source: ours. It is a bandit whose arms are the members that do not rest and their union; an arm that was not taken is judged too whenever its
members drafted, since what was committed tells how much of any tree would have been accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from tts_orch.policies.drafting.draft_account import LONGEST
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryId, TrajectoryStart
from tts_orch.policies.routing.merged_tree import merged_tree
from tts_orch.policies.routing.routing import Drafts, PassSeconds, Routing, StepOutcome

__all__ = ["ExpectedTokensRouting"]

_MEMORY: Final = 256
"""Observations that an arm's means are about."""
_OWN_MEMORY: Final = 16
"""The same for what a trajectory knows about itself."""

_Arm: TypeAlias = tuple[str, ...]


@dataclass(slots=True)
class _Estimate:
    """Running means for one arm: accepted tokens, nodes and seconds of drafting a step."""

    n: int = 0
    accepted: float = 0.0
    nodes: float = 0.0
    seconds: float = 0.0

    def add(self, accepted: int, nodes: int, seconds: float, memory: int) -> None:
        """Count a step; the newest weighs one part in `memory` at least."""
        if self.n:
            seconds = min(seconds, LONGEST * self.seconds)
        self.n += 1
        weight = 1 / min(self.n, memory)
        self.accepted += weight * (accepted - self.accepted)
        self.nodes += weight * (nodes - self.nodes)
        self.seconds += weight * (seconds - self.seconds)

    def speed(self, pass_seconds: PassSeconds) -> float:
        """Return expected tokens per second."""
        return (1.0 + self.accepted) / (self.seconds + pass_seconds(self.nodes))


@dataclass(slots=True)
class _Trajectory:
    own: dict[_Arm, _Estimate] = field(default_factory=dict)
    n_since: int = 0  # steps since all members drafted


class ExpectedTokensRouting(Routing):
    """Takes the fastest arm for each trajectory.

    A trajectory begins with what all others showed about an arm and forgets it as it gathers experience of its own.

    Args:
        members: as in `Routing`.
        n_steps: steps in which all members draft before any arm is preferred,
        probe_every: and steps of a trajectory after which they do so once more.
    """

    def __init__(self, members: Sequence[str], n_steps: int, probe_every: int) -> None:
        super().__init__(members)
        self._n_steps = n_steps
        self._probe_every = probe_every
        self._arms: defaultdict[_Arm, _Estimate] = defaultdict(_Estimate)
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        self._trajectories[start.trajectory] = _Trajectory()

    def drafting(self, trajectory: TrajectoryId, members: Sequence[str], pass_seconds: PassSeconds) -> Sequence[str]:
        """Return the fastest arm, of equals the first; all members where they are to be compared."""
        known = self._trajectories[trajectory]
        arms = dict.fromkeys([*((member,) for member in members), tuple(members)])
        if known.n_since >= self._probe_every or min(self._arms[arm].n for arm in arms) < self._n_steps:
            return members
        estimates = {arm: known.own.get(arm, self._arms[arm]) for arm in arms}
        return max(estimates, key=lambda arm: estimates[arm].speed(pass_seconds))

    def combine(self, trajectory: TrajectoryId, drafts: Drafts, n_nodes: int) -> DraftTree:
        """Return the tree, or the best nodes of all."""
        known = self._trajectories[trajectory]
        known.n_since = 0 if len(drafts) > 1 else known.n_since + 1
        trees = list(drafts.values())
        return trees[0] if len(trees) == 1 else merged_tree(trees, n_nodes)

    def observe(self, outcome: StepOutcome) -> None:
        """Count what each arm would have brought whose members drafted."""
        for member, tree in outcome.drafts.items():
            self._count((member,), outcome, outcome.accepted[member], tree.n_nodes - 1, outcome.seconds[member])
        if len(outcome.drafts) > 1:
            together = tuple(outcome.drafts)
            self._count(together, outcome, outcome.n_accepted, outcome.n_verified, sum(outcome.seconds.values()))

    def _count(self, arm: _Arm, outcome: StepOutcome, accepted: int, nodes: int, seconds: float) -> None:
        common = self._arms[arm]
        before = replace(common, n=min(common.n, _OWN_MEMORY))
        own = self._trajectories[outcome.trajectory].own.setdefault(arm, before)
        for estimate, memory in ((common, _MEMORY), (own, _OWN_MEMORY)):
            estimate.add(accepted, nodes, seconds, memory)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; what it taught about the members stays."""
        self._trajectories.pop(trajectory, None)
