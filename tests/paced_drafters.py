"""Drafters that are right as often, and take as long, as they are told to; a target's text, and a clock, for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tts_orch.policies.drafting.composed_drafter import ComposedDrafter
from tts_orch.policies.drafting.draft_tree import DraftTree, Growth, TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.node_budget import NodeBudget
from tts_orch.policies.drafting.paying_nodes import paying_nodes
from tts_orch.policies.drafting.text_drafter import TextDrafter
from tts_orch.records import SamplingParams

__all__ = ["Clock", "PacedDrafter", "World"]

_DEPTH = 5
_WRONG = 1000


@dataclass
class Clock:
    """Stands still unless somebody takes time."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _Position:
    """How many tokens of a trajectory are committed."""

    n: int

    def append(self, token_ids: Sequence[int]) -> None:
        self.n += len(token_ids)

    def draft(self, n_nodes: int) -> DraftTree:
        raise NotImplementedError


class PacedDrafter(TextDrafter):
    """A member of a composition that drafts chains.

    Args:
        clock: that its drafting moves.
        seconds: that a draft takes, for however many trajectories.
        hits: how likely each of its tokens is right, and how sure it is of that.
        number: drafters of one number are right about the same tokens, as far as they are as good.
    """

    priors = np.array([[0.5, 0.7]])

    def __init__(self, clock: Clock, seconds: float, hits: float, number: int = 0) -> None:
        super().__init__()
        self.clock, self.seconds, self.hits, self.number = clock, seconds, hits, number
        self.spent = 0.0
        self.n_drafts = 0

    def model(self, start: TrajectoryStart) -> _Position:
        return _Position(0)

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        return _Slots(self, list(trajectories))

    def chain(self, trajectory: TrajectoryId) -> DraftTree:
        """Return the draft of a trajectory."""
        n = self._models[trajectory].n
        luck = np.random.default_rng([self.number, n, int(trajectory)]).random(_DEPTH)
        own = _WRONG + self.number
        tokens = [n + i if is_right else own for i, is_right in enumerate(luck < self.hits)]
        tree = DraftTree.chain(n - 1, tokens, kind=1)
        return replace(tree, log_q=np.log([1.0] + [self.hits] * _DEPTH).astype(np.float32))


@dataclass
class _Slots:
    drafter: PacedDrafter
    trajectories: list[TrajectoryId]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        self.drafter.n_drafts += 1
        self.drafter.spent += self.drafter.seconds
        self.drafter.clock.now += self.drafter.seconds
        chains = [self.drafter.chain(trajectory) for trajectory in self.trajectories]
        return [tree.subtree(np.arange(tree.n_nodes) <= n) for tree, n in zip(chains, n_nodes, strict=True)]

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        return paying_nodes(self.grow(np.minimum(growth.max_nodes, growth.max_depth).tolist()), growth)


@dataclass
class World:
    """Decodes with a drafter, its passes taking what the cost curve says.

    Args:
        drafter: of `PacedDrafter`s.
        clock: theirs.
        n_trajectories: decoded at a time.
        row_seconds: of each row of a pass beyond the first; that one takes a second.
    """

    drafter: ComposedDrafter
    clock: Clock
    n_trajectories: int = 16
    row_seconds: float = 0.08
    n_tokens: int = 0
    n_passes: int = 0
    budget: NodeBudget = field(init=False)

    def __post_init__(self) -> None:
        self.budget = NodeBudget(self.drafter.priors, self.seconds, 8)
        self.names = [str(i) for i in range(self.n_trajectories)]
        for name in self.names:
            start = np.arange(2, dtype=np.int32)  # every token is its own position
            self.drafter.start(TrajectoryStart(name, start, "scope", 0, SamplingParams(temperature=0)))

    def seconds(self, rows: np.ndarray) -> np.ndarray:
        """Return what passes cost."""
        return np.asarray(1.0 + self.row_seconds * (np.asarray(rows) - 1.0))

    @property
    def plain(self) -> float:
        """Seconds of a pass without drafts."""
        return float(self.seconds(np.array(self.n_trajectories)))

    @property
    def speed(self) -> float:
        """Tokens a second, against plain decoding."""
        return self.n_tokens / self.clock.now * self.plain / self.n_trajectories

    def run(self, n_passes: int) -> None:
        """Decode."""
        for _ in range(n_passes):
            trees = [DraftTree.root_only(0)] * self.n_trajectories
            if not self.drafter.is_resting:
                rooms = np.full(self.n_trajectories, _DEPTH, np.int64)
                trees = self.budget.draft(self.drafter.slots(self.names), rooms, 0, self.n_trajectories)
            n_nodes = sum(tree.n_nodes - 1 for tree in trees)
            self.clock.now += float(self.seconds(np.array(self.n_trajectories + n_nodes)))
            steps = [_verified(*one) for one in zip(self.names, trees, strict=True)]
            if not self.drafter.is_resting:
                self.budget.observe(steps)
            self.drafter.observe(steps)
            self.n_tokens += sum(len(step.committed) for step in steps)
            self.n_passes += 1


def _verified(name: TrajectoryId, tree: DraftTree) -> VerifiedStep:
    accepted, node = [], 0
    while True:
        following = [child for child in tree.children[node] if tree.token[child] == tree.token[0] + tree.depth[child]]
        if not following:
            break
        (node,) = following
        accepted.append(node)
    committed = tree.token[0] + 1 + np.arange(len(accepted) + 1, dtype=np.int32)
    laws = np.zeros((tree.n_nodes, 1), np.int32), np.zeros((tree.n_nodes, 1), np.float32)
    return VerifiedStep(name, tree, np.array(accepted, np.int32), committed, *laws)
