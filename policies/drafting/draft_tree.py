"""`DraftTree`, the one value every drafter returns, and the contract between drafters and the decoder.

A drafter knows tokens and laws, never the model. The decoder asks for trees, verifies them in one pass and reports
what was verified; nothing else knows where a draft came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tts_orch.records import FloatArray, IntArray, SamplingParams

__all__ = [
    "DRAFTS_A_STEP",
    "AsynchronousDrafter",
    "CountingDrafter",
    "DraftLaws",
    "DraftTree",
    "Drafter",
    "Features",
    "Growth",
    "RankedSlots",
    "SlotSource",
    "TrajectoryId",
    "TrajectoryStart",
    "VerifiedStep",
    "WithoutFeatures",
]

TrajectoryId: TypeAlias = str

Features: TypeAlias = Any
"""`[m, d]` hidden states of the target as an array of its tensor library, on its device; policies only hand them on."""

DRAFTS_A_STEP: Final = 1024
"""More nodes than any tree has, root included."""


@dataclass(frozen=True, slots=True)
class DraftLaws:
    """The laws that a tree's stochastic nodes were drawn from, as they were at the draw; they travel with the draft.

    Siblings are drawn without replacement: the law of a node is its row without the tokens of all earlier siblings,
    renormalised.

    Attributes:
        ids: `[m, k]` distinct token ids, int32.
        probs: `[m, k]` their probabilities, float64; a row sums to 1, and ends in zeros where it has fewer than k ids.
        of_node: `[n]` row that each node was drawn from; -1 for deterministic nodes and the root.
    """

    ids: IntArray
    probs: NDArray[np.float64]
    of_node: IntArray


@dataclass(frozen=True)
class DraftTree:
    """Candidate continuations of one trajectory as a trie; node 0 is the root, the last committed token.

    Attributes:
        token: `[n]` token ids.
        parent: `[n]` index of each node's parent, `parent[i] < i`, -1 for the root.
        depth: `[n]` distance from the root.
        slot: `[n]` draw rank among siblings, 0 first; 0 for the root.
        log_q: `[n]` log-probability of the token under the drafter's law after its parent; 0 for the root and where a drafter
            has no law.
        source: `[n]` which part of the drafter proposed the node (n-gram: the order that hit); 0 for the root.
        kind: `[n]` which of the drafter's `priors` tells how likely the node is accepted once its parent is; 0 for the root.
        laws: where stochastic nodes come from; only rejection verification reads it, None if all are deterministic.
        log_promise: `[n]` log-probability that the verifier draws the token after the node's parent, as far as is known; 0 for the
            root, None where `log_q` tells it. The verifier's noise may draw what a law makes unlikely.
    """

    token: IntArray
    parent: IntArray
    depth: IntArray
    slot: IntArray
    log_q: FloatArray
    source: IntArray
    kind: IntArray
    laws: DraftLaws | None = None
    log_promise: FloatArray | None = None

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
        return cls(
            np.array([token], np.int32), np.array([-1], np.int32), zero, zero, np.zeros(1, np.float32), zero, zero
        )

    @classmethod
    def chain(cls, root: int, tokens: Sequence[int], source: int = 0, kind: int = 0) -> DraftTree:
        """Return the tree of one deterministic continuation, all nodes of one source and kind."""
        n = len(tokens)
        steps = np.arange(n + 1, dtype=np.int32)
        return cls(
            token=np.array([root, *tokens], np.int32),
            parent=steps - 1,
            depth=steps,
            slot=np.zeros(n + 1, np.int32),
            log_q=np.zeros(n + 1, np.float32),
            source=np.array([0] + [source] * n, np.int32),
            kind=np.array([0] + [kind] * n, np.int32),
        )

    def subtree(self, keep: NDArray[np.bool_]) -> DraftTree:
        """Return the tree of the nodes to keep, in their order; with a node its parent must be kept."""
        if keep.all():
            return self
        if not keep[1:].any():
            return DraftTree.root_only(int(self.token[0]))
        renumbered = np.cumsum(keep, dtype=np.int32) - 1
        parent = np.where(self.parent >= 0, renumbered[self.parent], np.int32(-1))
        laws = self.laws and DraftLaws(self.laws.ids, self.laws.probs, self.laws.of_node[keep])
        return DraftTree(
            token=self.token[keep],
            parent=parent[keep],
            depth=self.depth[keep],
            slot=self.slot[keep],
            log_q=self.log_q[keep],
            source=self.source[keep],
            kind=self.kind[keep],
            laws=laws,
            log_promise=None if self.log_promise is None else self.log_promise[keep],
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
        seed: what stochastic drafts are drawn with. Keyed verification: the trajectory seed, and candidates are drawn
            with the verifier's own noise of their absolute position (arXiv 2408.07978). Rejection: a seed for drafts
            alone, new in every attempt; position `n * DRAFTS_A_STEP + node` of its noise draws the children of that
            node, after `n` trees of the trajectory were drawn before.
        law: sampling law of the run.
        is_keyed: whether verification is keyed.
        domain: label of the problem, empty if it has none.
        drafter: member of a composed drafter that was assigned to the trajectory, empty for none.
    """

    trajectory: TrajectoryId
    token_ids: IntArray
    scope: str
    seed: int
    law: SamplingParams
    is_keyed: bool = True
    domain: str = ""
    drafter: str = ""


@dataclass(frozen=True, slots=True)
class VerifiedStep:
    """What one verify step taught about one trajectory, after every cut (EOS, stop string, length).

    Attributes:
        trajectory: its id.
        tree: the tree that was verified.
        accepted: `[a]` node indices on the committed path, root excluded.
        committed: `[c]` tokens committed in this step; `committed[i]` was drawn from the law of row
            `([0] + accepted)[i]`, so the first `c` of these rows are the verified positions.
        law_ids: `[tree.n_nodes, k]` most probable ids under the raw law after each node, most probable first. Rows of
            nodes off the accepted path, and behind a cut, are zero, unless the drafter learns from rejected nodes and trees have enough
            of them. All are zero where learning rests (`DraftBalance`).
        law_probs: `[tree.n_nodes, k]` their probabilities at T=1 before processors.
    """

    trajectory: TrajectoryId
    tree: DraftTree
    accepted: IntArray
    committed: IntArray
    law_ids: NDArray[np.int32]
    law_probs: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Growth:
    """By what the slots of a batch compete for the rows of one pass.

    Attributes:
        rates: `[kinds]` acceptance rate of each kind of node, once its parent is accepted.
        seconds: `[rows + 1]` cost of a pass by its number of rows, non-decreasing.
        other_rows: rows of the pass before any draft node is added.
        tokens_per_second: what a second of pass time is worth; a node pays if it promises more tokens than its time costs.
        max_nodes: `[b]` most nodes below each root.
        max_depth: `[b]` deepest level of each tree.
    """

    rates: NDArray[np.float64]
    seconds: NDArray[np.float64]
    other_rows: int
    tokens_per_second: float
    max_nodes: NDArray[np.int64]
    max_depth: NDArray[np.int64]


class SlotSource(Protocol):
    """Draft nodes of several trajectories, drawn only when one of its methods is called, once."""

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory with at most `n_nodes[i]` nodes below the root, the most promising ones."""
        ...


@runtime_checkable
class RankedSlots(SlotSource, Protocol):
    """A source that can draw slot by slot, the most promising of all trajectories first, until none pays."""

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        """Return one tree a trajectory.

        In rejection mode whether a slot is drawn depends on its parent's law, its rank and what was drawn before, never
        on its own token, and what was drawn stays (arXiv 2402.12374; non-anticipation).
        """
        ...


class Drafter(Protocol):
    """Proposes draft trees and learns from what was verified. Called from one thread."""

    @property
    def priors(self) -> NDArray[np.float64]:
        """`[kinds]` acceptance rates to begin with, by the kinds of its nodes; between 0 and 1."""
        ...

    @property
    def learns_from_rejected(self) -> bool:
        """Whether `observe` wants the laws of all verified nodes, those off the accepted path too."""
        ...

    @property
    def learns_prompt_laws(self) -> bool:
        """Whether `observe_prompt` wants the target's laws, which cost a row of the LM head each, or only the text."""
        ...

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Hidden states of the target that it wants, concatenated in this order; none if empty.

        0 are the embeddings, n is the output of the n-th layer, -1 what the LM head reads.
        """
        ...

    def start(self, start: TrajectoryStart) -> None:
        """Begin a trajectory."""
        ...

    def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
        """Return the slots of these trajectories at their committed positions.

        Before that it was told the features, if it wants any, of all these positions but the last one's, the root's.
        """
        ...

    def observe_prompt(
        self, trajectory: TrajectoryId, start: int, law_ids: NDArray[np.int32], law_probs: NDArray[np.float32]
    ) -> None:
        """Learn what follows positions `start`, `start + 1`, ... of a prefill.

        Args:
            trajectory: its id.
            start: the first of these positions.
            law_ids: `[m, k]` of the raw laws, or `[m, 1]` the next token of the text unless `learns_prompt_laws`.
            law_probs: `[m, k]` their probabilities.
        """
        ...

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Take the features of committed positions `start`, `start + 1`, ...: in order, each position once.

        Args:
            trajectory: its id.
            start: the first of these positions.
            features: `[m, d]`, d over all `feature_layers`.
        """
        ...

    def observe(self, steps: Sequence[VerifiedStep]) -> None:
        """Learn from the verify steps of one pass, one a trajectory, and advance these by their committed tokens."""
        ...

    def close(self, trajectory: TrajectoryId) -> None:
        """Forget a trajectory; statistics of its scope stay."""
        ...

    def close_scope(self, scope: str) -> None:
        """Drop the statistics of a scope that will not be used again."""
        ...


@runtime_checkable
class AsynchronousDrafter(Drafter, Protocol):
    """A drafter that can work on proposals while its caller does something else."""

    def request(self, trajectories: Sequence[TrajectoryId]) -> None:
        """Ask for proposals at the committed positions of these trajectories; told of their features as for `slots`.

        The next `slots` that has one of them waits for its proposals and collects them; who was not asked for is drafted for
        at once. Tokens committed in between, where drafting rests, make what was asked for void.
        """
        ...


@runtime_checkable
class CountingDrafter(Drafter, Protocol):
    """A drafter that counts what it does."""

    def statistics(self) -> dict[str, float]:
        """Return its counters by name; those of several workers are added up."""
        ...


class WithoutFeatures:
    """What a `Drafter` inherits that reads nothing of the target's hidden states."""

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """None."""
        return ()

    def observe_features(self, trajectory: TrajectoryId, start: int, features: Features) -> None:
        """Do nothing: nobody calls it, for want of layers."""
