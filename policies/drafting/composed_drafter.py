"""Several drafters as one: each follows every trajectory, and a routing says who drafts and which nodes are verified.

Source: arXiv 2603.27027. Ours: members of any kind, n-gram tables among them; routing before every step; equal budgets; and
acceptance is learned by member, since each has kinds of its own, and members that do not pay rest (`MemberAccounts`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.composed_kinds import ComposedKinds
from tts_orch.policies.drafting.composed_slots import ComposedSlots, TakenDrafts
from tts_orch.policies.drafting.draft_outcomes import step_outcome
from tts_orch.policies.drafting.draft_tree import (
    AsynchronousDrafter,
    CountingDrafter,
    Drafter,
    Growth,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.policies.drafting.drafter_group import DrafterGroup
from tts_orch.policies.drafting.member_ledger import MemberLedger
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.policies.routing.routing import PassSeconds, Routing, StepOutcome

__all__ = ["ComposedDrafter"]

_PASS_MEMORY = 1 / 32
"""Weight of the newest pass in the mean cost of one."""


@dataclass(slots=True)
class _Trajectory:
    domain: str
    root: int  # last committed token
    is_noisy: bool  # whether the verifier's noise may choose its drafts
    chosen: Sequence[str] | None = None  # who drafts next, if that was asked for ahead of time
    drafts: TakenDrafts | None = None  # until they are verified


class ComposedDrafter(DrafterGroup):
    """A `Drafter` made of others; a node's `source` says whose it is (`member_of_source`).

    Whoever is not asked for a draft is still told everything, so that it can be asked in any step.

    Args:
        members: by name, at least one. Under rejection verification all of them must draft deterministically.
        routing: made for the same names.
        clock: seconds, from any start.
    """

    def __init__(
        self, members: Mapping[str, Drafter], routing: Routing, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        super().__init__(members)
        self._routing = routing
        self._clock = clock
        self._kinds = ComposedKinds([member.priors for member in self.members.values()])
        self._trajectories: dict[TrajectoryId, _Trajectory] = {}
        self._ledger = MemberLedger(list(self.members))
        self._growth: Growth | None = None  # what the newest pass cost, if that is known
        self._drafted_at: float | None = None
        self._pass_seconds = 0.0  # mean cost of a pass for each trajectory, drafting aside

    def changed(self, members: Mapping[str, Drafter], routing: Routing) -> ComposedDrafter:
        """Return a composition of other members, which goes on counting."""
        other = ComposedDrafter(members, routing, self._clock)
        kept = [name for name, member in members.items() if self.members.get(name) is member]
        other._ledger = self._ledger.changed(list(members), kept)
        return other

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with, the members' below each other."""
        return self._kinds.priors

    @property
    def is_resting(self) -> bool:
        """Whether all members have cost more than they brought, for now."""
        return not self._ledger.accounts.offered

    @property
    def reads_features(self) -> bool:
        """Whether any member wants hidden states that may draft in the next pass; the others want them when they do."""
        return any(self.members[name].feature_layers for name in self._ledger.accounts.offered)

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        is_noisy = start.is_keyed and start.law.temperature > 0
        self._trajectories[start.trajectory] = _Trajectory(start.domain, int(start.token_ids[-1]), is_noisy)
        self._routing.start(start)
        super().start(start)

    def request(self, trajectories: Sequence[TrajectoryId]) -> None:
        """Choose who drafts next, and let those begin that can (`AsynchronousDrafter`)."""
        chosen = self._choose(trajectories, lambda n_nodes: self._pass_seconds)
        for trajectory, names in zip(trajectories, chosen, strict=True):
            self._trajectories[trajectory].chosen = names
        for name, member in self.members.items():
            own = [trajectory for trajectory, names in zip(trajectories, chosen, strict=True) if name in names]
            if own and isinstance(member, AsynchronousDrafter):
                member.request(own)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> ComposedSlots:
        """Return the slots of these trajectories at their committed positions."""
        known = [self._trajectories[trajectory] for trajectory in trajectories]

        def keep(drafts: Sequence[TakenDrafts], growth: Growth | None) -> None:
            for one, taken in zip(known, drafts, strict=True):
                one.drafts = taken
            self._growth, self._drafted_at = growth, self._clock()

        return ComposedSlots(
            self.members,
            self._kinds,
            self._routing,
            self._ledger.accounts.on_trial,
            trajectories,
            [one.root for one in known],
            [one.is_noisy for one in known],
            self._choose,
            keep,
            lambda n_nodes: self._pass_seconds,
            self._clock,
        )

    def _choose(self, trajectories: Sequence[TrajectoryId], pass_seconds: PassSeconds) -> list[Sequence[str]]:
        """Return who drafts for each trajectory; what was asked for ahead of time stays so."""
        chosen, offered = [], self._ledger.accounts.offered
        for trajectory in trajectories:
            names, self._trajectories[trajectory].chosen = self._trajectories[trajectory].chosen, None
            if names is None:
                names = self._routing.drafting(trajectory, offered, pass_seconds) if offered else ()
            chosen.append(names)
        return chosen

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Tell the members what was verified, and the routing what became of their drafts."""
        if self._drafted_at is not None:
            seconds = (self._clock() - self._drafted_at) / len(steps)
            weight = _PASS_MEMORY if self._pass_seconds else 1.0
            self._pass_seconds += weight * (seconds - self._pass_seconds)
            self._drafted_at = None
        self._ledger.count(steps)
        judged = [(step, outcome) for step in steps if (outcome := self._judge(step)) is not None]
        learning = {}
        for name, member in self.members.items():
            started = self._clock()
            member.observe(steps)
            learning[name] = self._clock() - started
        if judged and self._growth is not None:
            self._ledger.settle(judged, learning, self._growth)

    def _judge(self, step: VerifiedStep) -> StepOutcome | None:
        """Hold what the members drafted for a trajectory, if anything, against what was committed."""
        known = self._trajectories[step.trajectory]
        known.root = int(step.committed[-1])
        drafts, known.drafts = known.drafts, None
        if drafts is None or not drafts.trees:
            return None
        outcome = step_outcome(step, drafts)
        self._routing.observe(outcome)
        self._ledger.tally(known.domain, outcome)
        return outcome

    def take_report(self) -> RoutingReport:
        """Return what was counted since the last call."""
        return self._ledger.take_report()

    def statistics(self) -> dict[str, float]:
        """Return what became of each member's nodes (`member_shares`), and the members' own counters, added up.

        A composition inside this one is one member: trees tell whose a node was, not whose within it.
        """
        counters = Counter(self._ledger.counters())
        for member in self.members.values():
            if isinstance(member, CountingDrafter) and not isinstance(member, ComposedDrafter):
                counters.update(member.statistics())
        return dict(counters)

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory."""
        self._trajectories.pop(trajectory, None)
        self._routing.close(trajectory)
        super().close(trajectory)

    def close_scope(self, scope: str) -> None:
        """Drop the statistics of a scope."""
        self._routing.close_scope(scope)
        super().close_scope(scope)
