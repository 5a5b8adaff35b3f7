"""The compiled search for the best draft in tries: every matched context is tried, the most promising one wins."""

from __future__ import annotations

import heapq
from typing import Final, TypeAlias

import numba
import numpy as np

from tts_orch.policies.drafting.trie_kernels import longest_match
from tts_orch.policies.drafting.trie_nodes import COUNT, FIRST_CHILD, NEXT, PARENT, SUFFIX, TOKEN, Trie
from tts_orch.records import IntArray

__all__ = ["KINDS", "Limits", "best_draft"]

Limits: TypeAlias = tuple[float, float, float, bool]
"""Nodes of a draft for each token of its context, and on top; smallest probability of a node; tree or path."""

_N_CONTEXTS, _N_SHARES = 5, 8
KINDS: Final = (_N_CONTEXTS, _N_SHARES)
"""Kinds of nodes: by the length of their context (1, 2-3, 4-7, 8-15, more), then by how sure their counts are."""

_Candidate: TypeAlias = tuple[int, int, int, int]
"""Number of arrival, node of the trie, its parent in the draft, slot."""


@numba.njit(cache=True)
def best_draft(tries: tuple[Trie, Trie], recent: IntArray, max_nodes: int, limits: Limits) -> tuple[IntArray, int]:
    """Draft from every suffix of `recent` that a trie has, and return the draft with the largest sum of probabilities.

    Of equals the one with the longer context wins, then that of the first trie.

    Args:
        tries: at least two levels deep.
        recent: `[depth of the tries - 1]` the last tokens, or all if there are fewer.
        max_nodes: nodes below the root.
        limits: what else bounds a draft.

    Returns:
        `[5, n]` token, parent, depth, slot and kind of each node, the root first, and the number of the trie.
    """
    per_token, extra, least, is_tree = limits
    columns = np.zeros((5, max_nodes + 1), np.int32)
    columns[0, 0], columns[1, 0] = recent[-1], -1
    best, n_best, best_score, best_trie = columns.copy(), 1, 0.0, 0
    places, lengths = np.zeros(2, np.int64), np.zeros(2, np.int64)
    for i in range(2):
        places[i], lengths[i] = longest_match(tries[i], recent)
    for length in range(lengths.max(), 0, -1):
        n_nodes = int(min(max_nodes, per_token * length + extra))
        if n_nodes <= best_score:
            break  # a node adds 1 at most, and shorter contexts get no more nodes
        for i in range(2):
            if length <= lengths[i]:
                nodes = tries[i][0]
                n, score = _grow(nodes, places[i], length, n_nodes, least, is_tree, columns)
                if score > best_score:
                    best, columns, n_best, best_score, best_trie = columns, best, n, score, i
                places[i] = nodes[places[i], SUFFIX]
    return best[:, :n_best], best_trie


@numba.njit(cache=True)
def _grow(
    nodes: IntArray, start: int, length: int, n_nodes: int, least: float, is_tree: bool, columns: IntArray
) -> tuple[int, float]:
    """Write the `n_nodes` most probable nodes below `start` into `columns`, best first, of equals the first found.

    Returns:
        Number of nodes, root included, and the sum of the probabilities of all others.
    """
    probability = np.ones(n_nodes + 1, np.float64)
    heap = [(0.0, (0, 0, 0, 0))]  # minus the probability, candidate
    heap.pop()  # it only told the type
    _offer(nodes, heap, least, 1.0, (0, np.int64(nodes[start, FIRST_CHILD]), 0, 0))
    n, score = 1, 0.0
    while len(heap) > 0 and n <= n_nodes:
        negative, (_, node, parent, slot) = heapq.heappop(heap)
        probability[n] = -negative
        score += probability[n]
        depth = columns[2, parent] + 1
        kind = _kind(nodes, node, length + depth - 1)
        columns[0, n], columns[1, n], columns[2, n], columns[3, n] = nodes[node, TOKEN], parent, depth, slot
        columns[4, n] = kind
        _offer(nodes, heap, least, probability[n], (2 * n, np.int64(nodes[node, FIRST_CHILD]), n, 0))
        if is_tree:
            sibling = (2 * n + 1, np.int64(nodes[node, NEXT]), parent, slot + 1)
            _offer(nodes, heap, least, probability[parent], sibling)
        n += 1
    return n, score


@numba.njit(cache=True)
def _offer(
    nodes: IntArray, heap: list[tuple[float, _Candidate]], least: float, above: float, candidate: _Candidate
) -> None:
    """Add a candidate, if there is one, unless it is too improbable; `above` is the probability of its parent."""
    node = candidate[1]
    if node >= 0:
        probability = above * nodes[node, COUNT] / nodes[nodes[node, PARENT], COUNT]
        if probability >= least:
            heapq.heappush(heap, (-probability, candidate))


@numba.njit(cache=True)
def _kind(nodes: IntArray, node: int, context_length: int) -> int:
    """Return the kind of a node; its share is of all counts and one more, so that few counts say less."""
    share = _N_SHARES * nodes[node, COUNT] // (nodes[nodes[node, PARENT], COUNT] + 1)
    context = 0
    while context < _N_CONTEXTS - 1 and context_length >= 2 << context:
        context += 1
    return context * _N_SHARES + share
