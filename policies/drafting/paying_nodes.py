"""Which nodes of deterministic draft trees are worth a row of the pass: nodes of all trees compete for them.

A node promises the probability that it gets accepted, the product of the acceptance rates along its path. The choice may look
at the drafted tokens, so it is not for trees with drawn nodes under rejection verification.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree, Growth

__all__ = ["node_worths", "paying_nodes"]


def paying_nodes(trees: Sequence[DraftTree], growth: Growth) -> list[DraftTree]:
    """Cut trees, none of them deeper or larger than it may be, down to the nodes that pay together."""
    worths = [node_worths(tree, growth.rates) for tree in trees]
    flat = np.concatenate([worth[1:] for worth in worths])
    n_most = len(growth.seconds) - 1 - growth.other_rows
    order = np.argsort(-flat, kind="stable")[:n_most]  # of equals the parent comes first
    rows = growth.other_rows + np.arange(len(order) + 1)
    added = growth.seconds[rows] - growth.seconds[growth.other_rows]
    gains = np.concatenate([[0.0], np.cumsum(flat[order])]) - growth.tokens_per_second * added
    is_kept = np.zeros(len(flat), bool)
    is_kept[order[: int(np.argmax(gains))]] = True
    ends = np.cumsum([tree.n_nodes - 1 for tree in trees])[:-1]
    return [
        tree.subtree(np.concatenate([[True], kept])) for tree, kept in zip(trees, np.split(is_kept, ends), strict=True)
    ]


def node_worths(tree: DraftTree, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `[n]` the probability that each node gets accepted, 1 for the root.

    Args:
        tree: of drafts.
        rates: `[kinds]` acceptance rate of each kind of node, once its parent is accepted.
    """
    own = rates[tree.kind]
    worths = np.ones(tree.n_nodes)
    for node, parent in enumerate(tree.parent.tolist()[1:], start=1):
        worths[node] = worths[parent] * own[node]
    return worths
