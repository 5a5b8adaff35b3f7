"""`DraftTree`, the one value every drafter returns, and the contract between drafters and the decoder.

A drafter knows tokens and laws, never the model. The decoder asks for trees, verifies them in one pass and reports
what was verified; nothing else knows where a draft came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = ["DraftTree", "Drafter", "SlotSource", "TrajectoryId", "TrajectoryStart", "VerifiedStep"]

TrajectoryId: TypeAlias = str


@dataclass(frozen=True)
class DraftTree:
    """Candidate continuations of one trajectory as a trie; node 0 is the root, the last committed token.

    Attributes:
        token: `[n]` token ids.
        parent: `[n]` index of each node's parent, `parent[i] < i`, -1 for the root.
        depth: `[n]` distance from the root.
        slot: `[n]` draw rank among siblings, 0 first; 0 for the root.
        log_q: `[n]` log-probability of the token under the law it was drawn from; 0 for deterministic nodes and the root.
        source: `[n]` which part of the drafter proposed the node (n-gram: the order that hit); 0 for the root.
    """

    token: IntArray
    parent: IntArray
    depth: IntArray
    slot: IntArray
    log_q: FloatArray
    source: IntArray

    @property
    def n_nodes(self) -> int:
        """Number of nodes, root included."""
        return len(self.token)

    @cached_property
    def children(self) -> list[list[int]]:
        """Child indices of every node, in draw order."""
        children: list[list[int]] = [[] for _ in range(self.n_nodes)]
        for node, parent in enumerate(self.parent.tolist()[1:], start=1):
            children[parent].append(node)
        return children

    @classmethod
    def root_only(cls, token: int) -> DraftTree:
        """Return the tree without drafts: plain decoding."""
        zero = np.zeros(1, np.int32)
        return cls(np.array([token], np.int32), np.array([-1], np.int32), zero, zero, np.zeros(1, np.float32), zero)

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int], source: int = 0) -> DraftTree:
        """Return the tree of one deterministic continuation."""
        n = len(tokens)
        steps = np.arange(n + 1, dtype=np.int32)
        return cls(
            token=np.array([root, *tokens], np.int32),
            parent=steps - 1,
            depth=steps,
            slot=np.zeros(n + 1, np.int32),
            log_q=np.zeros(n + 1, np.float32),
            source=np.array([0] + [source] * n, np.int32),
        )

    def subtree(self, keep: NDArray[np.bool_]) -> DraftTree:
        """Return the tree of the nodes to keep, in their order; with a node its parent must be kept."""
        if keep.all():
            return self
        if not keep[1:].any():
            return DraftTree.root_only(int(self.token[0]))
        renumbered = np.cumsum(keep, dtype=np.int32) - 1
        parent = np.where(self.parent >= 0, renumbered[self.parent], np.int32(-1))
        return DraftTree(
            self.token[keep], parent[keep], self.depth[keep], self.slot[keep], self.log_q[keep], self.source[keep]
        )

    def path(self, node: int) -> list[int]:
        """Return the node indices from below the root down to `node`."""
        nodes: list[int] = []
        while node > 0:
            nodes.append(node)
            node = int(self.parent[node])
        return nodes[::-1]


@dataclass(frozen=True, slots=True)
class TrajectoryStart:
    """What a drafter is told when a trajectory begins.

    Attributes:
        trajectory: its id.
        token_ids: `[n]` prompt and whatever is committed already.
        scope: trajectories of one scope share statistics.
        seed: trajectory seed; drafters may order candidates by the same noise the verifier uses (arXiv 2408.07978).
        law: sampling law of the run.
    """

    trajectory: TrajectoryId
    token_ids: IntArray
    scope: str
    seed: int
    law: SamplingParams


@dataclass(frozen=True, slots=True)
class VerifiedStep:
    """What one verify step taught about one trajectory, after every cut (EOS, stop string, length).

    Attributes:
        trajectory: its id.
        tree: the tree that was verified.
        accepted: `[a]` node indices on the committed path, root excluded.
        committed: `[c]` tokens committed in this step; `committed[i]` was drawn from the law of row
            `([0] + accepted)[i]`, so the first `c` of these rows are the verified positions.
        law_ids: `[tree.n_nodes, k]` most probable ids under the raw law after each node, most probable first; rows of
            nodes that were not verified are zero.
        law_probs: `[tree.n_nodes, k]` their probabilities at T=1 before processors.
    """

    trajectory: TrajectoryId
    tree: DraftTree
    accepted: IntArray
    committed: IntArray
    law_ids: NDArray[np.int32]
    law_probs: NDArray[np.float32]


class SlotSource(Protocol):
    """Slots of several trajectories, best first, drawn only as far as they are asked for."""

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root. Call once."""
        ...


class Drafter(Protocol):
    """Proposes draft trees and learns from what was verified. Called from one thread."""

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        ...

    def fork(self, source: TrajectoryId, target: TrajectoryStart) -> None:
        """Begin a trajectory that continues another one's committed tokens."""
        ...

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        """Return the slots of these trajectories at their committed positions."""
        ...

    def observe_prompt(
        self, trajectory: TrajectoryId, start: int, law_ids: NDArray[np.int32], law_probs: NDArray[np.float32]
    ) -> None:
        """Learn the raw laws `[m, k]` that the prefill computed after positions `start`, `start + 1`, ..."""
        ...

    def observe(self, step: VerifiedStep) -> None:
        """Learn from a verify step and advance the trajectory by its committed tokens."""
        ...

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; statistics of its scope stay."""
        ...

    def close_scope(self, scope: str) -> None:
        """Drop the statistics of a scope that will not be used again."""
        ...
