"""The union of several drafters' trees: one prefix, one node.

Source: arXiv 2603.27027, which lays trees side by side. A prefix that stands twice would be verified twice, and judged twice
where tokens are drawn by rejection, which biases the law; so trees are merged as tries. A node's score is the best
probability that any of the drafters gives its prefix, and an equal budget keeps the best nodes of all, as EAGLE-2 (arXiv
2406.16858) does with those of one drafter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.routing.tree_confidence import path_log_probs

__all__ = ["merged_tree"]


def merged_tree(trees: Sequence[DraftTree], n_nodes: int | None = None) -> DraftTree:
    """Return the trie of all nodes of deterministic trees on one root, best first, with `log_q` by the best scores.

    Which nodes it has does not depend on the order of the trees: of equal scores the shorter prefix is better, then that with
    the lower tokens. What a node is known by, its `kind` and `source`, comes from the tree with its best score, the first
    such tree.

    Args:
        trees: at least one; without laws, and `log_q` at most 0.
        n_nodes: most nodes below the root; all if not given.
    """
    score, parent, prefix = [0.0], [-1], [()]  # by prefix, in order of arrival, the root first
    origin = [(0, 0)]
    children: dict[tuple[int, int], int] = {}
    for number, tree in enumerate(trees):
        tokens, scores, place = tree.token.tolist(), path_log_probs(tree).tolist(), [0]
        for node, above in enumerate(tree.parent.tolist()[1:], start=1):
            key = place[above], tokens[node]
            if key not in children:
                children[key] = len(score)
                score.append(scores[node])
                parent.append(key[0])
                prefix.append((*prefix[key[0]], key[1]))
                origin.append((number, node))
            place.append(children[key])
            if scores[node] > score[place[-1]]:
                score[place[-1]], origin[place[-1]] = scores[node], (number, node)
    order = sorted(range(1, len(score)), key=lambda at: (-score[at], len(prefix[at]), prefix[at]))[:n_nodes]
    return _tree(trees, [0, *order], score, parent, origin)


def _tree(
    trees: Sequence[DraftTree],
    order: Sequence[int],
    score: Sequence[float],
    parent: Sequence[int],
    origin: Sequence[tuple[int, int]],
) -> DraftTree:
    """Return the tree of some prefixes, in this order, the root first; with a prefix its parent is among them."""
    number = {at: node for node, at in enumerate(order)}
    parents = [-1, *(number[parent[at]] for at in order[1:])]
    depth, slot, n_children = [0], [0], [0] * len(order)
    for above in parents[1:]:
        depth.append(depth[above] + 1)
        slot.append(n_children[above])
        n_children[above] += 1
    origins = [(trees[tree], node) for tree, node in (origin[at] for at in order)]
    return DraftTree(
        token=np.array([tree.token[node] for tree, node in origins], np.int32),
        parent=np.array(parents, np.int32),
        depth=np.array(depth, np.int32),
        slot=np.array(slot, np.int32),
        log_q=np.array([0.0, *(score[at] - score[parent[at]] for at in order[1:])], np.float32),
        source=np.array([tree.source[node] for tree, node in origins], np.int32),
        kind=np.array([tree.kind[node] for tree, node in origins], np.int32),
    )
