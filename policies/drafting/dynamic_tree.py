"""Dynamic draft trees: expanded level by level from the most promising nodes, then cut to the best of all that was seen.

A node promises the product of conditional probabilities along its path, so no node promises more than its parent and the best
nodes always form a tree.

Source: EAGLE-2, arXiv 2406.16858.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.drafting.law_candidates import Candidates
from tts_orch.records import IntArray

__all__ = ["DynamicTrees"]


class DynamicTrees:
    """The trees of several trajectories while they grow; nodes have numbers, the roots those of their trees.

    Args:
        roots: `[b]` last committed tokens.
        rates: `[kinds]` acceptance rate of each kind of node, once its parent is accepted.
    """

    def __init__(self, roots: Sequence[int], rates: NDArray[np.float64]) -> None:
        n = len(roots)
        self._rates = rates
        self._newest = 0  # first node of the last level
        self.tree: NDArray[np.int64] = np.arange(n)
        self.token: IntArray = np.array(roots, np.int32)
        self.parent: NDArray[np.int64] = np.full(n, -1)
        self.depth: IntArray = np.zeros(n, np.int32)
        self.acceptance: NDArray[np.float64] = np.ones(n)
        self._slot, self._kind = np.zeros((2, n), np.int32)
        self._log_q, self._log_promise = np.zeros((2, n))

    @property
    def n_trees(self) -> int:
        """Number of trajectories."""
        return int((self.parent < 0).sum())

    def expand(self, nodes: NDArray[np.int64], candidates: Candidates) -> None:
        """Add a level: row `i` of the candidates becomes the children of `nodes[i]`."""
        rows, ranks = np.nonzero(candidates.log_promise > -np.inf)
        above, kind = nodes[rows], candidates.kind[rows, ranks]
        self._newest = len(self.token)
        self.tree = np.append(self.tree, self.tree[above])
        self.token = np.append(self.token, candidates.token[rows, ranks])
        self.parent = np.append(self.parent, above)
        self.depth = np.append(self.depth, self.depth[above] + np.int32(1))
        self.acceptance = np.append(self.acceptance, self.acceptance[above] * self._rates[kind])
        self._slot = np.append(self._slot, ranks.astype(np.int32))
        self._kind = np.append(self._kind, kind)
        self._log_q = np.append(self._log_q, candidates.log_q[rows, ranks])
        promise = self._log_promise[above] + np.minimum(candidates.log_promise[rows, ranks], 0.0)
        self._log_promise = np.append(self._log_promise, promise)

    def beams(self, width: NDArray[np.int64], max_depth: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the most promising nodes of each tree's last level, tree by tree.

        Args:
            width: `[b]` most nodes of each tree.
            max_depth: `[b]` deepest level that children of these nodes may be on.
        """
        newest = np.arange(self._newest, len(self.token))
        newest = newest[self.depth[newest] < max_depth[self.tree[newest]]]
        return self._best(newest, width)

    def build(self, n_nodes: NDArray[np.int64]) -> list[DraftTree]:
        """Return the trees of the `n_nodes[i]` most promising nodes, root not counted, in the order of their promise."""
        n_trees = self.n_trees
        kept = np.concatenate([np.arange(n_trees), self._best(np.arange(n_trees, len(self.token)), n_nodes)])
        kept = kept[np.argsort(self.tree[kept], kind="stable")]  # each root before the nodes of its tree
        sizes = np.bincount(self.tree[kept], minlength=n_trees)
        ends = np.cumsum(sizes)
        number = np.full(len(self.token), -1, np.int32)  # of a node within its tree
        number[kept] = np.arange(len(kept)) - np.repeat(ends - sizes, sizes)
        parent = np.where(self.parent[kept] < 0, np.int32(-1), number[self.parent[kept]])
        columns = (
            self.token[kept],
            parent,
            self.depth[kept],
            self._slot[kept],
            self._log_q[kept].astype(np.float32),
            np.zeros(len(kept), np.int32),
            self._kind[kept],
        )
        parts = zip(*(np.split(column, ends[:-1]) for column in columns), strict=True)
        return [DraftTree(*part) for part in parts]

    def _best(self, nodes: NDArray[np.int64], n_best: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the most promising of some nodes, `n_best[i]` of tree `i`; of equals the older, so parents first."""
        order = nodes[np.lexsort((nodes, -self._log_promise[nodes], self.tree[nodes]))]
        trees = self.tree[order]
        rank = np.arange(len(order)) - np.searchsorted(trees, trees)
        best: NDArray[np.int64] = order[rank < n_best[trees]]
        return best
