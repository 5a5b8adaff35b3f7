"""Drafters for tests: they propose what no drafter would, know what no drafter can, and check what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tts_orch.policies.drafting.draft_tree import (
    DraftTree,
    Features,
    TrajectoryId,
    TrajectoryStart,
    VerifiedStep,
)
from tts_orch.records import FloatArray, IntArray


class TreeBuilder:
    """Grows a trie node by node."""

    def __init__(self, root: int) -> None:
        self._token, self._parent, self._depth, self._slot = [root], [-1], [0], [0]
        self._children: list[dict[int, int]] = [{}]

    def __len__(self) -> int:
        """Nodes below the root."""
        return len(self._token) - 1

    def add(self, parent: int, token: int) -> int:
        """Return the child of `parent` that holds `token`, a new one if there is none."""
        if token not in self._children[parent]:
            self._children[parent][token] = len(self._token)
            self._slot.append(len(self._children[parent]) - 1)
            self._token.append(token)
            self._parent.append(parent)
            self._depth.append(self._depth[parent] + 1)
            self._children.append({})
        return self._children[parent][token]

    def build(self) -> DraftTree:
        zeros = np.zeros(len(self._token), np.int32)
        columns = [np.array(column, np.int32) for column in (self._token, self._parent, self._depth, self._slot)]
        return DraftTree(*columns, log_q=zeros.astype(np.float32), source=zeros, kind=zeros)


@dataclass
class Told:
    """What a drafter was told about one trajectory."""

    start: TrajectoryStart
    tokens: list[int]
    steps: list[VerifiedStep] = field(default_factory=list)
    prompt_rows: list[int] = field(default_factory=list)
    features: list[Features] = field(default_factory=list)  # a row a position
    is_closed: bool = False
    n_waiting: int = 0  # drawn trees that were not verified yet


class CheckingDrafter:
    """Base: follows every trajectory and objects to whatever breaks the contract."""

    priors = np.full(1, 0.5)
    learns_from_rejected = False
    learns_prompt_laws = True
    feature_layers: tuple[int, ...] = ()

    def __init__(self) -> None:
        self.told: dict[TrajectoryId, Told] = {}
        self.closed_scopes: list[str] = []

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        """Return a tree with at most `n_nodes` nodes below the last of the committed `tokens`."""
        return DraftTree.root_only(tokens[-1])

    def start(self, start: TrajectoryStart) -> None:
        assert start.trajectory not in self.told or self.told[start.trajectory].is_closed, "started twice"
        self.told[start.trajectory] = Told(start, start.token_ids.tolist())

    def slots(self, trajectories: Sequence[TrajectoryId]) -> _Slots:
        assert len(set(trajectories)) == len(trajectories)
        for told in map(self.told.__getitem__, trajectories):
            assert not told.is_closed
            assert not self.feature_layers or len(told.features) == len(told.tokens) - 1, "features of all but the root"
        return _Slots(self, trajectories)

    def observe_prompt(self, trajectory: TrajectoryId, start: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        told = self.told[trajectory]
        assert law_ids.shape == law_probs.shape
        assert 0 <= start <= start + len(law_ids) <= len(told.tokens)
        told.prompt_rows += range(start, start + len(law_ids))

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        told = self.told[trajectory]
        assert self.feature_layers, "nobody asked"
        assert not told.is_closed
        assert start == len(told.features), "a gap, or the same again"
        assert 0 < len(features) <= len(told.tokens) - 1 - start
        told.features += [row.clone() for row in features]

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        assert len({step.trajectory for step in steps}) == len(steps)
        for step in steps:
            self._check(step)

    def _check(self, step: VerifiedStep) -> None:
        told, tree = self.told[step.trajectory], step.tree
        assert not told.is_closed
        told.n_waiting = max(told.n_waiting - 1, 0)  # none was drawn at rest
        assert told.n_waiting == 0, "a drawn tree was dropped: under rejection the law would follow its tokens"
        assert tree.token[0] == told.tokens[-1], "the tree does not stand on the last committed token"
        rows = [0, *step.accepted.tolist()]
        assert tree.parent[rows[1:]].tolist() == rows[:-1], "accepted nodes are no path"
        assert tree.token[step.accepted].tolist() == step.committed[: len(step.accepted)].tolist()
        assert 1 <= len(step.committed) <= len(rows)
        verified = rows[: len(step.committed)]
        assert (step.law_probs[verified].sum(axis=1) > 0).all() or not step.law_probs.any()  # none while learning rests
        assert not np.delete(step.law_probs, verified, axis=0).any(), "laws of nodes that were not verified"
        told.steps.append(step)
        told.tokens += step.committed.tolist()

    def close(self, trajectory: TrajectoryId) -> None:
        assert not self.told[trajectory].is_closed, "closed twice"
        self.told[trajectory].is_closed = True

    def close_scope(self, scope: str) -> None:
        self.closed_scopes.append(scope)


@dataclass(frozen=True)
class _Slots:
    drafter: CheckingDrafter
    trajectories: Sequence[TrajectoryId]

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        trees = []
        for trajectory, n in zip(self.trajectories, n_nodes, strict=True):
            tree = self.drafter.tree(trajectory, self.drafter.told[trajectory].tokens, n)
            assert tree.n_nodes <= n + 1
            self.drafter.told[trajectory].n_waiting += 1
            trees.append(tree)
        return trees


class RandomDrafter(CheckingDrafter):
    """Trees of random shape and size with random tokens, end tokens among them more often than by chance."""

    def __init__(self, vocabulary_size: int, end_ids: Sequence[int], seed: int = 0) -> None:
        super().__init__()
        self._random = np.random.default_rng(seed)
        self._vocabulary_size = vocabulary_size
        self._end_ids = end_ids

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        builder = TreeBuilder(tokens[-1])
        for _ in range(int(self._random.integers(0, n_nodes + 1))):
            is_end = self._random.random() < 0.1
            token = self._random.choice(self._end_ids) if is_end else self._random.integers(self._vocabulary_size)
            builder.add(int(self._random.integers(0, len(builder) + 1)), int(token))
        return builder.build()


Continuations = Mapping[TrajectoryId, Sequence[int]]
"""All tokens, prompt included, of a plain run of each trajectory."""


class OracleDrafter(CheckingDrafter):
    """Proposes the true continuation: every node is accepted.

    Args:
        continuations: what a plain run gave.
        block: length of each chain.
    """

    def __init__(self, continuations: Continuations, block: int = 255) -> None:
        super().__init__()
        self._continuations = continuations
        self._block = block

    def truth(self, trajectory: TrajectoryId, tokens: list[int], n_tokens: int) -> list[int]:
        return list(self._continuations[trajectory][len(tokens) : len(tokens) + n_tokens])

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        return DraftTree.chain(tokens[-1], self.truth(trajectory, tokens, min(n_nodes, self._block)))


class AdversarialDrafter(OracleDrafter):
    """Almost right: the truth hidden among look-alikes, chains that go wrong late, and no draft at all, in turn."""

    def __init__(self, continuations: Continuations, vocabulary_size: int) -> None:
        super().__init__(continuations)
        self._vocabulary_size = vocabulary_size
        self._turns: dict[TrajectoryId, int] = {}

    def tree(self, trajectory: TrajectoryId, tokens: list[int], n_nodes: int) -> DraftTree:
        turn = self._turns[trajectory] = self._turns.get(trajectory, -1) + 1
        shapes: tuple[Callable[[int, list[int], int], DraftTree], ...] = (self._bushy, self._late_error, self._tempting)
        if turn % 4 == 3:
            return DraftTree.root_only(tokens[-1])
        return shapes[turn % 4](tokens[-1], self.truth(trajectory, tokens, n_nodes), n_nodes)

    def _wrong(self, token: int, step: int = 1) -> int:
        return (token + step) % self._vocabulary_size

    def _bushy(self, root: int, truth: list[int], n_nodes: int) -> DraftTree:
        """Put wrong siblings before the truth on each level, with the true continuation below them."""
        builder, node = TreeBuilder(root), 0
        for i, token in enumerate(truth):
            if len(builder) + 4 > n_nodes:
                break
            wrong = [builder.add(node, self._wrong(token, step)) for step in (1, 2)]
            builder.add(wrong[0], truth[(i + 1) % len(truth)])
            node = builder.add(node, token)
        while len(builder) < n_nodes:
            builder.add(0, self._wrong(truth[0] if truth else 0, 3 + len(builder)))
        return builder.build()

    def _late_error(self, root: int, truth: list[int], n_nodes: int) -> DraftTree:
        """Go wrong in the last place and on with it."""
        if not truth:
            return DraftTree.root_only(root)
        n_right = min(len(truth) - 1, 6)
        wrong = [self._wrong(truth[n_right])] * (n_nodes - n_right)
        return DraftTree.chain(root, truth[:n_right] + wrong[:8])

    def _tempting(self, root: int, truth: list[int], n_nodes: int) -> DraftTree:
        """Offer the truth from one position later: right tokens at the wrong place, beside one right node."""
        builder, node = TreeBuilder(root), 0
        for token in truth[1 : n_nodes - 1]:
            node = builder.add(node, token)
        if truth and len(builder) < n_nodes:
            builder.add(0, truth[0])
        return builder.build()
