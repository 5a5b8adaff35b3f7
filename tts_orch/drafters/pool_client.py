"""A drafter that lives in a pool: only committed tokens and features travel there, and trees back."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.drafters.pool_line import Exchange, PoolLine, PoolTransport
from tts_orch.drafters.pool_messages import MemberFacts, PoolRequest
from tts_orch.drafters.told_trajectory import ToldTrajectory
from tts_orch.policies.drafting.draft_tree import DraftTree, Features, TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.records import FloatArray, IntArray

__all__ = ["PooledDrafter"]

_DEADLINE_S: Final = 5.0
_KEPT_BYTES: Final = 1 << 30
_CLOSED_REMEMBERED: Final = 4096  # while there is no pool; it forgets by itself what nobody asks about


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the tree of a trajectory is: which reply, the how manieth tree of it."""

    exchange: Exchange
    index: int


class PooledDrafter:
    """An `AsynchronousDrafter` that asks one drafter of a pool.

    A pool that is dead, late or restarted costs drafts, never tokens: trees have no nodes until it is found again. What it
    forgot is sent again from the beginning of a trajectory; features are kept for that within a bound on memory.

    Args:
        transport: carries requests to the pool.
        name: the drafter's, in the pool.
        facts: what it is.
        n_nodes: most nodes of a tree below its root; where fewer are wanted these are its first: trained drafters' trees begin
            with the most promising nodes.
        deadline_s: longest wait for a reply.
        kept_bytes: memory for features that may have to be sent again; the oldest trajectories' are given up first.
    """

    learns_from_rejected = False
    learns_prompt_laws = False

    def __init__(
        self,
        transport: PoolTransport,
        name: str,
        facts: MemberFacts,
        *,
        n_nodes: int,
        deadline_s: float = _DEADLINE_S,
        kept_bytes: int = _KEPT_BYTES,
    ) -> None:
        self._line = PoolLine(transport, name, deadline_s)
        self._name = name
        self._facts = facts
        self._n_nodes = n_nodes
        self._kept_bytes = kept_bytes
        self._client = uuid.uuid4().hex
        self._told: dict[TrajectoryId, ToldTrajectory] = {}
        self._closed: deque[TrajectoryId] = deque(maxlen=_CLOSED_REMEMBERED)
        self._places: dict[TrajectoryId, _Place] = {}

    @property
    def priors(self) -> NDArray[np.float64]:
        """`[kinds]` acceptance rates to begin with."""
        return self._facts.priors

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Hidden states of the target that it wants."""
        return self._facts.feature_layers

    def statistics(self) -> dict[str, float]:
        """Return counts of requests and failures, bytes sent, seconds waited, and seconds hidden behind other work."""
        return {f"pool_{name}": value for name, value in asdict(self._line.statistics).items()}

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        self._told[start.trajectory] = ToldTrajectory(start)

    def request(self, trajectories: Sequence[TrajectoryId]) -> None:
        """Ask for proposals that a later `slots` collects."""
        asked = [name for name in trajectories if not self._told[name].is_lost]
        if not asked or self._line.is_paused:
            return
        news = tuple(self._told[name].news() for name in asked)
        exchange = self._line.ask(PoolRequest(self._client, self._name, news, tuple(self._closed), self._n_nodes))
        if exchange is None:
            self._begin_anew(asked)
            return
        self._closed.clear()
        self._places.update({name: _Place(exchange, index) for index, name in enumerate(asked)})

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        """Return the slots of these trajectories; those that were not asked for are asked for now."""
        unasked = [name for name in trajectories if name not in self._places]
        if unasked:
            self.request(unasked)
        return _Slots(self, trajectories)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        """Do nothing: trained drafters read the prompt when they draft."""

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Take the features of the next positions."""
        self._told[trajectory].add_features(features)
        excess = sum(told.kept_bytes for told in self._told.values()) - self._kept_bytes
        for told in self._told.values():
            if excess <= 0:
                return
            excess -= told.kept_bytes
            told.release()

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Advance trajectories by their committed tokens."""
        for step in steps:
            self._told[step.trajectory].commit(step.committed)
            self._places.pop(step.trajectory, None)  # asked for, but not fetched before drafting rested

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; the pool hears of it with the next request."""
        if self._told.pop(trajectory, None) is not None:
            self._closed.append(trajectory)
            self._places.pop(trajectory, None)

    def close_scope(self, scope: str) -> None:
        """Do nothing: trained drafters share no statistics."""

    def collect(self, trajectory: TrajectoryId) -> DraftTree:
        """Wait for the tree that was asked for; without one, the tree has no drafts."""
        told, place = self._told[trajectory], self._places.pop(trajectory, None)
        if place is not None:
            reply = self._line.collect(place.exchange)
            tree = reply.trees[place.index] if reply else None
            if tree is not None and tree.token[0] == told.root:
                return tree
            self._begin_anew([trajectory])
        return DraftTree.root_only(told.root)

    def _begin_anew(self, trajectories: Sequence[TrajectoryId]) -> None:
        for name in trajectories:
            self._told[name].begin_anew()


@dataclass(frozen=True, slots=True)
class _Slots:
    drafter: PooledDrafter
    trajectories: Sequence[TrajectoryId]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root."""
        trees = [self.drafter.collect(trajectory) for trajectory in self.trajectories]
        return [tree.subtree(np.arange(tree.n_nodes) <= n) for tree, n in zip(trees, n_nodes, strict=True)]
