"""The compiled growth of STAND's draft trees for a whole batch: into a fixed shape, or best first while nodes pay."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.policies.drafting.ngram_kernels import Columns
from tts_orch.policies.drafting.stand_kinds import REJECTION
from tts_orch.policies.drafting.stand_law import CANDIDATES, ORDER, Draws, draw_children, kind_at, new_draws
from tts_orch.records import FloatArray, IntArray

__all__ = [
    "DEPTH",
    "KIND",
    "PARENT",
    "SLOT",
    "SOURCE",
    "TOKEN",
    "TREE",
    "Batch",
    "Forest",
    "Laws",
    "grow_shapes",
    "grow_while_paying",
]

Laws: TypeAlias = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]
"""The columns of `DraftLaw`, by tree."""

Batch: TypeAlias = tuple[IntArray, NDArray[np.uint64], NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64], Laws]
"""By tree: last tokens `[b, ORDERS]`, most recent first, salts, seeds, positions of the noise that draws the root's children,
modes, laws."""

Forest: TypeAlias = tuple[IntArray, FloatArray]
"""By node, roots first: `[7, n]` with the rows below, and `[n]` log_q."""

TREE: Final = 0
TOKEN: Final = 1
PARENT: Final = 2
"""Its number within the tree."""
DEPTH: Final = 3
SLOT: Final = 4
SOURCE: Final = 5
KIND: Final = 6
_ROWS: Final = 7

_LOOKAHEAD: Final = 16
"""Nodes that may have to be added together before a step of the cost curve pays."""


@numba.njit(cache=True, nogil=True)
def grow_shapes(
    columns: Columns,
    batch: Batch,
    lowest_order: int,
    shape_parent: IntArray,
    shape_slot: IntArray,
    n_nodes: NDArray[np.int64],
) -> tuple[Forest, Draws]:
    """Fill the first `n_nodes[i]` slots of a static shape for every tree.

    A slot stays empty, and all below it, where no order knows the context or the law has no token left.

    Args:
        columns: the table.
        batch: the trees to grow.
        lowest_order: shortest context that may hit.
        shape_parent: and
        shape_slot: `[s]` of the shape, root first; with every place its lower ranks come before it.
        n_nodes: `[b]` slots to fill below each root, less than `s`.
    """
    n_trees = len(n_nodes)
    forest, context = _roots(batch[0], n_trees + n_nodes.sum())
    draws = new_draws(len(context))
    node_of = np.empty(len(shape_parent), np.int64)
    n = n_trees
    for tree in range(n_trees):
        node_of[:] = -1
        node_of[0] = tree
        n_own = 1
        for place in range(1, n_nodes[tree] + 1):
            above, rank = node_of[shape_parent[place]], shape_slot[place]
            if above < 0:
                continue
            own = 0 if above == tree else above - n + n_own
            if rank == 0:
                _expand(columns, batch, lowest_order, forest, context, draws, above, own)
            if rank < draws[0][above, CANDIDATES]:
                _add(forest, context, draws, n, above, own, rank, kind_at(draws, above, rank, batch[4][tree]))
                node_of[place] = n
                n += 1
                n_own += 1
    return (forest[0][:, :n], forest[1][:n]), draws


@numba.njit(cache=True, nogil=True)
def grow_while_paying(
    columns: Columns,
    batch: Batch,
    lowest_order: int,
    rates: NDArray[np.float64],
    seconds: NDArray[np.float64],
    other_rows: int,
    tokens_per_second: float,
    max_nodes: NDArray[np.int64],
    max_depth: NDArray[np.int64],
    cuts_back: bool,
) -> tuple[Forest, Draws]:
    """Add the most promising slot of all trees again and again, until no further node pays.

    A slot promises the probability that its node is accepted: the product of rates along the path. Whether the next one is
    drawn depends on that promise and the rows so far. `cuts_back` drops, at the end, the last nodes that were added in
    the hope of filling a step of the cost curve; after rejection draws that would bias the law.
    """
    n_trees, modes = len(max_nodes), batch[4]
    capacity = n_trees + min(max_nodes.sum(), len(seconds) - 1 - other_rows)
    forest, context = _roots(batch[0], capacity)
    draws = new_draws(capacity)
    own, n_own = np.zeros(capacity, np.int64), np.ones(n_trees, np.int64)
    worth = np.ones(capacity)
    heap = [(0.0, 0, 0) for _ in range(0)]
    for tree in range(n_trees):
        if max_nodes[tree] > 0 and max_depth[tree] > 0:
            _expand(columns, batch, lowest_order, forest, context, draws, tree, 0)
            if draws[0][tree, CANDIDATES] > 0:
                heappush(heap, (-rates[kind_at(draws, tree, 0, modes[tree])], tree, 0))
    n, gain, best_gain, best = n_trees, 0.0, 0.0, n_trees
    while len(heap) > 0 and n < capacity:
        promise, above, rank = heappop(heap)
        promise = -promise
        rows = other_rows + n - n_trees
        if not _pays(promise, tokens_per_second, seconds, rows):
            break
        tree = forest[0][TREE, above]
        if n_own[tree] > max_nodes[tree]:
            continue
        _add(forest, context, draws, n, above, own[above], rank, kind_at(draws, above, rank, modes[tree]))
        own[n], worth[n] = n_own[tree], promise
        n_own[tree] += 1
        gain += promise - tokens_per_second * (seconds[rows + 1] - seconds[rows])
        if rank + 1 < draws[0][above, CANDIDATES]:
            next_promise = min(promise, worth[above] * rates[kind_at(draws, above, rank + 1, modes[tree])])
            heappush(heap, (-next_promise, above, rank + 1))
        if forest[0][DEPTH, n] < max_depth[tree]:
            _expand(columns, batch, lowest_order, forest, context, draws, n, own[n])
            if draws[0][n, CANDIDATES] > 0:
                heappush(heap, (-promise * rates[kind_at(draws, n, 0, modes[tree])], n, 0))
        n += 1
        if gain > best_gain or not cuts_back:
            best_gain, best = gain, n
    return (forest[0][:, :best], forest[1][:best]), draws


@numba.njit(cache=True)
def _pays(promise: float, tokens_per_second: float, seconds: NDArray[np.float64], rows: int) -> bool:
    """Return whether some number of nodes with this promise is worth its time."""
    for more in range(1, min(_LOOKAHEAD, len(seconds) - 1 - rows) + 1):
        if more * promise > tokens_per_second * (seconds[rows + more] - seconds[rows]):
            return True
    return False


@numba.njit(cache=True)
def _roots(tails: IntArray, n: int) -> tuple[Forest, IntArray]:
    """Return room for `n` nodes that begins with the roots, and the context of each node."""
    n_trees = len(tails)
    nodes, context = np.zeros((_ROWS, n), np.int32), np.empty((n, ORDERS), np.int32)
    nodes[TREE, :n_trees], nodes[TOKEN, :n_trees], nodes[PARENT, :n_trees] = np.arange(n_trees), tails[:, 0], -1
    context[:n_trees] = tails
    return (nodes, np.zeros(n, np.float32)), context


@numba.njit(inline="always")
def _expand(
    columns: Columns,
    batch: Batch,
    lowest_order: int,
    forest: Forest,
    context: IntArray,
    draws: Draws,
    node: int,
    own: int,
) -> None:
    """Draw the children of a node, number `own` of its tree."""
    _, salts, seeds, positions, modes, laws = batch
    tree = forest[0][TREE, node]
    position = positions[tree] + (own if modes[tree] == REJECTION else forest[0][DEPTH, node])
    law = laws[0][tree], laws[1][tree], laws[2][tree], laws[3][tree]
    draw_children(
        columns, context[node], salts[tree], lowest_order, law, modes[tree], seeds[tree], position, draws, node
    )


@numba.njit(inline="always")
def _add(
    forest: Forest, context: IntArray, draws: Draws, node: int, above: int, own: int, rank: int, kind: int
) -> None:
    """Add the child of this rank to node `above`, number `own` of its tree."""
    nodes, log_q = forest
    facts, tokens, log_qs, _, _, _ = draws
    nodes[TREE, node], nodes[TOKEN, node], nodes[PARENT, node] = nodes[TREE, above], tokens[above, rank], own
    nodes[DEPTH, node], nodes[SLOT, node] = nodes[DEPTH, above] + 1, rank
    nodes[SOURCE, node], nodes[KIND, node], log_q[node] = facts[above, ORDER], kind, log_qs[above, rank]
    context[node, 0] = nodes[TOKEN, node]
    for order in range(1, ORDERS):
        context[node, order] = context[above, order - 1]
