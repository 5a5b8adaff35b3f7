"""The slots of STAND's draft trees: hands a batch of trajectories to the compiled growth and cuts out each one's tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DRAFTS_A_STEP, DraftLaws, DraftTree, Growth
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand_growth import (
    DEPTH,
    KIND,
    PARENT,
    SLOT,
    SOURCE,
    TOKEN,
    TREE,
    Batch,
    Forest,
    grow_shapes,
    grow_while_paying,
)
from tts_orch.policies.drafting.stand_kinds import REJECTION
from tts_orch.policies.drafting.stand_law import Draws
from tts_orch.policies.drafting.tree_shape import TreeShape
from tts_orch.records import IntArray, SamplingParams

__all__ = ["StandSlots", "TrajectoryState"]


@dataclass(slots=True)
class TrajectoryState:
    """What STAND knows of a live trajectory.

    Attributes:
        scope: and
        salt: of its statistics.
        seed: of its draft noise.
        law: its sampling law.
        mode: how its candidates are drawn (`stand_kinds`).
        length: committed tokens, prompt included.
        tail: `[ORDERS]` the last of them, most recent first, -1 where there are fewer.
        prompt: `[n]` tokens it began with.
        n_drafts: trees drawn so far.
    """

    scope: str
    salt: np.uint64
    seed: np.uint64
    law: SamplingParams
    mode: int
    length: int
    tail: IntArray
    prompt: IntArray
    n_drafts: int = 0

    def take_position(self) -> int:
        """Return where the noise of the next tree begins; rejection draws of different trees share none."""
        self.n_drafts += 1
        return (self.n_drafts - 1) * DRAFTS_A_STEP if self.mode == REJECTION else self.length


@dataclass(frozen=True, slots=True)
class StandSlots:
    """Slots of several trajectories at their committed positions.

    Args:
        table: the statistics.
        shape: the static tree.
        states: the trajectories.
        lowest_order: shortest context that may hit.
        stored_law: how stored laws are processed, None for each trajectory's own sampling law.
    """

    table: NgramTable
    shape: TreeShape
    states: Sequence[TrajectoryState]
    lowest_order: int
    stored_law: SamplingParams | None

    def grow(self, n_nodes: Sequence[int]) -> list[DraftTree]:
        """Return one tree a trajectory that fills the first `n_nodes[i]` slots of the static shape."""
        n_slots = np.minimum(np.asarray(n_nodes, np.int64), len(self.shape.parent) - 1)
        forest, draws = grow_shapes(
            self.table.columns, self._batch(), self.lowest_order, self.shape.parent, self.shape.slot, n_slots
        )
        return self._trees(forest, draws)

    def grow_while_paying(self, growth: Growth) -> list[DraftTree]:
        """Return one tree a trajectory, grown best first over all of them (`RankedSlots`)."""
        forest, draws = grow_while_paying(
            self.table.columns,
            self._batch(),
            self.lowest_order,
            growth.rates,
            growth.seconds,
            growth.other_rows,
            growth.tokens_per_second,
            growth.max_nodes,
            growth.max_depth,
            all(state.mode != REJECTION for state in self.states),
        )
        return self._trees(forest, draws)

    def _batch(self) -> Batch:
        states = self.states
        laws = [self.stored_law or state.law for state in states]
        return (
            np.array([state.tail for state in states], np.int32),
            np.array([state.salt for state in states], np.uint64),
            np.array([state.seed for state in states], np.uint64),
            np.array([state.take_position() for state in states], np.int64),
            np.array([state.mode for state in states], np.int64),
            (
                np.array([law.temperature for law in laws], np.float64),
                np.array([law.top_k for law in laws], np.int64),
                np.array([law.top_p for law in laws], np.float64),
                np.array([law.min_p for law in laws], np.float64),
            ),
        )

    def _trees(self, forest: Forest, draws: Draws) -> list[DraftTree]:
        """Cut the forest into trees; the nodes of a tree keep their order."""
        nodes, log_q = forest
        by_tree = np.argsort(nodes[TREE], kind="stable")
        ends = np.concatenate([[0], np.cumsum(np.bincount(nodes[TREE], minlength=len(self.states)))])
        nodes, log_q = nodes.take(by_tree, axis=1), log_q[by_tree]
        trees = []
        for state, first, last in zip(self.states, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            own = slice(first, last)
            parent = nodes[PARENT, own]
            laws = _laws(draws, by_tree[own], parent) if state.mode == REJECTION else None
            token, depth, slot, source, kind = (nodes[row, own] for row in (TOKEN, DEPTH, SLOT, SOURCE, KIND))
            trees.append(DraftTree(token, parent, depth, slot, log_q[own], source, kind, laws))
        return trees


def _laws(draws: Draws, nodes: NDArray[np.int64], parent: IntArray) -> DraftLaws:
    """Return the laws after the nodes of one tree: a node's own was its parent's."""
    *_, law_ids, law_log_probs = draws
    return DraftLaws(law_ids[nodes], np.exp(law_log_probs[nodes]), parent)
