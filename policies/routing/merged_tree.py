"""The union of several drafters' trees: one prefix, one node.

Source: arXiv 2603.27027, which lays trees side by side. A prefix that stands twice would be verified twice, and judged twice
where tokens are drawn by rejection, which biases the law; so trees are merged as tries. A node's score is the best
probability that any of the drafters promises for its prefix, and an equal budget keeps the best nodes of all, as EAGLE-2 (arXiv
2406.16858) does with those of one drafter.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.policies.routing.tree_confidence import path_log_promises
from tts_orch.records import FloatArray, IntArray

__all__ = ["merged_tree"]


def merged_tree(trees: Sequence[DraftTree], n_nodes: int | None = None) -> DraftTree:
    """Return the trie of all nodes of deterministic trees on one root, best first, with `log_promise` by the best scores.

    Which nodes it has does not depend on the order of the trees: of equal scores the shorter prefix is better, then that with
    the better parent, then that with the lower token. What a node is known by, its `log_q`, `kind` and `source`, comes from the
    tree with its best score, the first such tree.

    Args:
        trees: at least one; without laws, and what they promise at most 0.
        n_nodes: most nodes below the root; all if not given.
    """
    sizes = np.array([tree.n_nodes for tree in trees])
    trie = _union(
        np.concatenate([tree.token for tree in trees]),
        np.concatenate([tree.parent for tree in trees]),
        np.concatenate([path_log_promises(tree) for tree in trees]),
        sizes,
    )
    columns, log_promise, origin = _best_first(*trie, int(sizes.sum()) if n_nodes is None else n_nodes)
    token, parent, depth, slot = columns
    log_q = np.concatenate([tree.log_q for tree in trees])[origin]
    source = np.concatenate([tree.source for tree in trees])[origin]
    kind = np.concatenate([tree.kind for tree in trees])[origin]
    return DraftTree(token, parent, depth, slot, log_q, source, kind, log_promise=log_promise)


@numba.njit(cache=True)
def _union(
    token: IntArray, parent: IntArray, score: NDArray[np.float64], sizes: NDArray[np.int64]
) -> tuple[IntArray, IntArray, NDArray[np.float64], IntArray]:
    """Enter all trees, laid end to end, into a trie.

    Returns:
        Of each of its nodes, the root first: token, children as a list (first child and next sibling, `[2, n]`, -1 for none),
        best score, and which node has that.
    """
    tokens, scores, origin = np.zeros(len(token), np.int32), np.zeros(len(token)), np.zeros(len(token), np.int32)
    links = np.full((2, len(token)), -1, np.int32)
    place = np.zeros(len(token), np.int32)
    tokens[0], n, first = token[0], 1, 0
    for size in sizes:
        for node in range(first + 1, first + size):
            above = place[first + parent[node]]
            child = links[0, above]
            while child >= 0 and tokens[child] != token[node]:
                child = links[1, child]
            if child < 0:
                child, n = n, n + 1
                links[1, child], links[0, above] = links[0, above], child
                tokens[child], scores[child], origin[child] = token[node], score[node], node
            elif score[node] > scores[child]:
                scores[child], origin[child] = score[node], node
            place[node] = child
        first += size
    return tokens[:n], links[:, :n], scores[:n], origin[:n]


@numba.njit(cache=True)
def _best_first(
    tokens: IntArray, links: IntArray, scores: NDArray[np.float64], origin: IntArray, n_nodes: int
) -> tuple[IntArray, FloatArray, IntArray]:
    """Take the root and the `n_nodes` best nodes of a trie, whose scores fall along its paths.

    Returns:
        `[4, n]` token, parent, depth and slot of a `DraftTree`, `[n]` its `log_promise`, and `[n]` the origin of its nodes.
    """
    n_most = min(n_nodes + 1, len(tokens))
    columns, taken = np.zeros((4, n_most), np.int32), np.zeros(n_most, np.int32)
    n_children = np.zeros(n_most, np.int32)
    log_promise = np.zeros(n_most, np.float32)
    columns[0, 0], columns[1, 0] = tokens[0], -1
    heap = [
        (0.0, np.int64(0), 0, np.int64(0), np.int64(0))
    ]  # minus the score, depth, parent's number, token, trie node
    heap.pop()  # it only told the type
    for n in range(n_most):
        if n > 0:
            _, depth, parent, _, node = heapq.heappop(heap)
            columns[0, n], columns[1, n], columns[2, n], columns[3, n] = tokens[node], parent, depth, n_children[parent]
            log_promise[n] = scores[node] - scores[taken[parent]]
            taken[n] = node
            n_children[parent] += 1
        depth, child = np.int64(columns[2, n]) + 1, links[0, taken[n]]
        while child >= 0:
            heapq.heappush(heap, (-scores[child], depth, n, np.int64(tokens[child]), np.int64(child)))
            child = links[1, child]
    return columns, log_promise, origin[taken]
