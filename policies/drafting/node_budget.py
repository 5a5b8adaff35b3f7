"""Which draft nodes are worth verifying: nodes of all trajectories compete for the rows of one pass.

A node is worth the probability that it gets accepted: the product, along its path, of learned acceptance rates. Taken
best first over the whole batch, `k` nodes promise `B + worth` committed tokens for a pass of `rows + k` rows; the `k` with
the most tokens a second wins. Where rows are nearly free that is many nodes, where they are dear it is few or none.

Rates are learned online by what the drafter says of a node: where it comes from, its slot, and the probability it
was drawn with. In keyed verification a choice may look at the drawn token, since what is emitted does not depend on what
was drafted.

Source: the criterion of Sequoia (arXiv 2402.12374, section 4.2), per node and with measured rates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import FloatArray, IntArray

__all__ = ["NodeBudget"]

_SOURCES, _SLOTS, _PROBABILITIES = 8, 3, 5
_PRIOR_WEIGHT = 8.0
_MEMORY = 512.0
"""Trials of a kind of node after which older ones count half."""
_PROBE_EVERY = 32
"""Steps between those that verify more than pays, so that a rate learned too low can recover."""


class NodeBudget:
    """Learns acceptance rates and chooses nodes.

    Args:
        max_nodes: most nodes of one trajectory.
    """

    def __init__(self, max_nodes: int) -> None:
        self.max_nodes = max_nodes
        self._tried = np.full((_SOURCES, _SLOTS, _PROBABILITIES), _PRIOR_WEIGHT)
        self._accepted = self._tried * _prior()
        self._steps = 0
        self._largest = max_nodes

    @property
    def n_wanted(self) -> int:
        """Nodes to ask of a drafter for each trajectory: some more than lately paid, since what does not pay is dropped."""
        return min(self.max_nodes, self._largest + 2)

    def choose(
        self,
        trees: Sequence[DraftTree],
        other_rows: int,
        seconds: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> list[DraftTree]:
        """Return the trees cut down to the nodes that pay.

        Args:
            trees: one a decoding trajectory, roots included.
            other_rows: rows of the pass beside these trees.
            seconds: cost of passes by their rows.
        """
        worths = self.worths(trees)
        order = np.argsort(-worths, kind="stable")  # of equals the parent comes first
        gains = np.cumsum(worths[order])
        n_kept = self._best_size(len(trees), gains, other_rows, seconds)
        is_kept = np.zeros(len(order), bool)
        is_kept[order[:n_kept]] = True
        chosen, first = [], 0
        for tree in trees:
            n = tree.n_nodes - 1
            chosen.append(tree.subtree(np.concatenate([[True], is_kept[first : first + n]])))
            first += n
        self._largest = max(tree.n_nodes - 1 for tree in chosen)
        return chosen

    def observe(self, tree: DraftTree, accepted: Sequence[int]) -> None:
        """Learn from a verified tree; `accepted` are the accepted nodes, root excluded.

        Only children of nodes on the accepted path were judged.
        """
        visited = {0, *accepted}
        judged = np.array([node for node in range(1, tree.n_nodes) if int(tree.parent[node]) in visited], np.int64)
        if len(judged) == 0:
            return
        kind = _kind(tree.source[judged], tree.slot[judged], tree.log_q[judged])
        np.add.at(self._tried, kind, 1.0)
        np.add.at(self._accepted, kind, np.isin(judged, accepted).astype(np.float64))
        fade = np.where(self._tried > _MEMORY, 0.5, 1.0)
        self._tried *= fade
        self._accepted *= fade

    def worths(self, trees: Sequence[DraftTree]) -> NDArray[np.float64]:
        """Return the probability that each node gets accepted, for all nodes below the roots, tree by tree."""
        kind = _kind(
            np.concatenate([tree.source[1:] for tree in trees]),
            np.concatenate([tree.slot[1:] for tree in trees]),
            np.concatenate([tree.log_q[1:] for tree in trees]),
        )
        rates = iter((self._accepted[kind] / self._tried[kind]).tolist())
        worths: list[float] = []
        for tree in trees:
            path = [1.0]  # the root's, then each node's
            for parent in tree.parent[1:].tolist():
                path.append(path[parent] * next(rates))
            worths += path[1:]
        return np.array(worths)

    def _best_size(
        self,
        n_trees: int,
        gains: NDArray[np.float64],
        other_rows: int,
        seconds: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> int:
        self._steps += 1
        tokens = n_trees + np.concatenate([[0.0], gains])
        rows = other_rows + n_trees + np.arange(len(tokens), dtype=np.float64)
        best = int(np.argmax(tokens / seconds(rows)))
        if self._steps % _PROBE_EVERY == 0:
            return min(len(gains), 2 * best + n_trees)
        return best


def _kind(source: IntArray, slot: IntArray, log_q: FloatArray) -> tuple[NDArray[np.int64], ...]:
    """Return the kind of each node: source, slot, fifth of the probability it was drawn with."""
    probability = np.exp(log_q) * _PROBABILITIES
    return (
        np.clip(source, 0, _SOURCES - 1).astype(np.int64),
        np.minimum(slot, _SLOTS - 1).astype(np.int64),
        np.clip(probability, 0, _PROBABILITIES - 1).astype(np.int64),
    )


def _prior() -> NDArray[np.float64]:
    """Return the rates to begin with: a first draw is about as good as its law says, later draws seldom win."""
    by_probability = (np.arange(_PROBABILITIES) + 0.5) / _PROBABILITIES
    by_slot = np.array([0.8, 0.25, 0.1])
    return np.broadcast_to(by_slot[:, None] * by_probability, (_SOURCES, _SLOTS, _PROBABILITIES))
