"""What became of drafts: one tally for replays and for real runs, so that their figures mean the same.

Acceptance length tau is committed tokens over verify steps: the bonus token counts, tokens behind a cut do not, and
neither does prefill, which commits nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tts_orch.policies.drafting.draft_tree import TrajectoryId, VerifiedStep
from tts_orch.replay.recording import problem_and_index

__all__ = ["Acceptance", "SourceCount", "StepCount", "trajectory_index"]


def trajectory_index(trajectory: TrajectoryId) -> int:
    """Return the place of a trajectory among those of its problem, from its id."""
    return problem_and_index(trajectory)[1]


@dataclass(slots=True)
class StepCount:
    """Verify steps and what they committed."""

    verify_steps: int = 0
    committed_tokens: int = 0

    @property
    def tau(self) -> float:
        """Committed tokens per verify step; 0 without any."""
        return self.committed_tokens / self.verify_steps if self.verify_steps else 0.0

    def add(self, n_committed: int) -> None:
        """Count a verify step."""
        self.verify_steps += 1
        self.committed_tokens += n_committed


@dataclass(slots=True)
class SourceCount:
    """What one part of a drafter proposed, for n-gram tables the contexts of one order.

    Attributes:
        roots: verify steps whose root had a child from here.
        nodes: nodes drafted.
        tried: committed positions at which a child from here was offered.
        accepted: of these, positions at which it held the committed token.
    """

    roots: int = 0
    nodes: int = 0
    tried: int = 0
    accepted: int = 0

    @property
    def acceptance(self) -> float:
        """Share of positions at which a child was accepted, of those that had one; 0 without any."""
        return self.accepted / self.tried if self.tried else 0.0


@dataclass(slots=True)
class Acceptance:
    """Counts verify steps.

    Attributes:
        total: over all trajectories.
        by_index: by trajectory index.
        by_source: by the source that nodes name.
        by_length: verify steps by how many draft nodes they accepted.
        draft_nodes: nodes drafted, roots aside.
        index_of: the index of a trajectory.
    """

    total: StepCount = field(default_factory=StepCount)
    by_index: defaultdict[int, StepCount] = field(default_factory=lambda: defaultdict(StepCount))
    by_source: defaultdict[int, SourceCount] = field(default_factory=lambda: defaultdict(SourceCount))
    by_length: Counter[int] = field(default_factory=Counter)
    draft_nodes: int = 0
    index_of: Callable[[TrajectoryId], int] = trajectory_index

    def add(self, steps: Sequence[VerifiedStep]) -> None:
        """Count the verify steps of a pass."""
        for step in steps:
            self._add(step)

    def _add(self, step: VerifiedStep) -> None:
        n_committed = len(step.committed)
        self.total.add(n_committed)
        self.by_index[self.index_of(step.trajectory)].add(n_committed)
        self.by_length[len(step.accepted)] += 1
        self.draft_nodes += step.tree.n_nodes - 1
        if step.tree.n_nodes > 1:
            self._add_sources(step)

    def _add_sources(self, step: VerifiedStep) -> None:
        source, children = step.tree.source, step.tree.children
        for name, count in enumerate(np.bincount(source[1:]).tolist()):
            if count:
                self.by_source[name].nodes += count
        for name in {int(source[child]) for child in children[0]}:
            self.by_source[name].roots += 1
        accepted = step.accepted.tolist()
        for node in [0, *accepted][: len(step.committed)]:
            for name in {int(source[child]) for child in children[node]}:
                self.by_source[name].tried += 1
        for node in accepted:
            self.by_source[int(source[node])].accepted += 1

    @property
    def tau(self) -> float:
        """Committed tokens per verify step."""
        return self.total.tau

    @property
    def accepted_nodes(self) -> int:
        """Draft nodes that were committed."""
        return sum(length * n_steps for length, n_steps in self.by_length.items())

    @property
    def wasted_nodes(self) -> int:
        """Draft nodes that were verified in vain."""
        return self.draft_nodes - self.accepted_nodes

    @property
    def nodes_a_step(self) -> float:
        """Draft nodes per verify step."""
        return self.draft_nodes / self.total.verify_steps if self.total.verify_steps else 0.0

    @property
    def draft_acceptance_rate(self) -> float:
        """Accepted over drafted nodes; 0 without drafts."""
        return self.accepted_nodes / self.draft_nodes if self.draft_nodes else 0.0

    def at_depth(self, depth: int) -> float:
        """Return the share of verify steps that accepted at least `depth` nodes."""
        n_steps = sum(n for length, n in self.by_length.items() if length >= depth)
        return n_steps / self.total.verify_steps if self.total.verify_steps else 0.0

    def hit_rate(self, source: int) -> float:
        """Return the share of verify steps in which a source proposed what follows the root."""
        count = self.by_source.get(source)
        return count.roots / self.total.verify_steps if count else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return all figures under the names that reports use."""
        deepest = max(self.by_length, default=0)
        return {
            "tau": self.tau,
            "verify_steps": self.total.verify_steps,
            "committed_tokens": self.total.committed_tokens,
            "draft_nodes": self.draft_nodes,
            "accepted_nodes": self.accepted_nodes,
            "wasted_nodes": self.wasted_nodes,
            "nodes_a_step": self.nodes_a_step,
            "draft_acceptance_rate": self.draft_acceptance_rate,
            "tau_by_index": {index: count.tau for index, count in sorted(self.by_index.items())},
            "acceptance_at_depth": {depth: self.at_depth(depth) for depth in range(1, deepest + 1)},
            "by_source": {
                source: {"hit_rate": self.hit_rate(source), "acceptance": count.acceptance, "nodes": count.nodes}
                for source, count in sorted(self.by_source.items())
            },
        }
