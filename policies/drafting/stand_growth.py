"""The compiled growth of one STAND draft tree: context of each node, back-off, law, keyed draw without replacement."""

from __future__ import annotations

import math
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.policies.drafting.gumbel import gumbels
from tts_orch.policies.drafting.ngram_kernels import Entries, Keys, context_key, find_entry
from tts_orch.policies.drafting.ngram_table import EXPOSED
from tts_orch.records import FloatArray, IntArray

__all__ = ["DraftLaw", "grow_tree"]


DraftLaw: TypeAlias = tuple[float, int, float, float]
"""What a stored raw law is processed with: temperature, top_k, top_p and min_p of `SamplingParams`."""


@numba.njit(cache=True)
def grow_tree(
    index: IntArray,
    entries: Entries,
    committed: IntArray,
    shape_parent: IntArray,
    shape_slot: IntArray,
    n_nodes: int,
    seed: np.uint64,
    law: DraftLaw,
) -> tuple[IntArray, FloatArray]:
    """Fill the first `n_nodes` slots of a static shape.

    A slot stays empty, and all below it, where no order knows the context or the law has no token left.

    Args:
        index: and
        entries: the table.
        committed: `[t]` prompt and output.
        shape_parent: and
        shape_slot: `[s]` of the shape, root first.
        n_nodes: slots to fill below the root, less than `s`.
        seed: trajectory seed.
        law: how stored laws are processed.

    Returns:
        `[5, n]` token, parent, depth, slot and source, and `[n]` log_q of a `DraftTree`, nodes in the shape's order.
    """
    columns, log_q = np.zeros((5, n_nodes + 1), np.int32), np.zeros(n_nodes + 1, np.float32)
    token, parent, depth, slot, source = columns
    token[0], parent[0] = committed[-1], -1
    node_of = np.full(n_nodes + 1, -1, np.int32)  # shape slot -> node of the tree
    node_of[0] = 0
    order, n_drawn = np.zeros(n_nodes + 1, np.int32), np.zeros(n_nodes + 1, np.int32)
    drawn, drawn_log_q = np.empty((n_nodes + 1, EXPOSED), np.int32), np.empty((n_nodes + 1, EXPOSED), np.float32)
    n = 1
    for place in range(1, n_nodes + 1):
        above, rank = node_of[shape_parent[place]], shape_slot[place]
        if above < 0:
            continue
        if rank == 0:
            entry, order[above] = _back_off(index, entries[0], committed, token, parent, above, depth[above])
            if entry >= 0:
                position = len(committed) + depth[above]
                n_drawn[above] = _draw(entries, entry, seed, position, law, drawn[above], drawn_log_q[above])
        if rank < n_drawn[above]:
            node_of[place] = n
            token[n], parent[n], depth[n], slot[n] = drawn[above, rank], above, depth[above] + 1, rank
            log_q[n], source[n] = drawn_log_q[above, rank], order[above]
            n += 1
    return columns[:, :n], log_q[:n]


@numba.njit(cache=True)
def _back_off(
    index: IntArray, keys: Keys, committed: IntArray, token: IntArray, parent: IntArray, node: int, depth: int
) -> tuple[int, int]:
    """Return the entry of the longest known context that ends at a node, and its order; -1 and 0 for none."""
    entry, hit, key = -1, 0, np.uint64(0)
    for order in range(1, min(ORDERS, len(committed) + depth) + 1):
        if node > 0:
            last, node = token[node], parent[node]
        else:
            last = committed[len(committed) - order + depth]
        key = context_key(key, last, order)
        found = find_entry(index, keys, key)
        if found >= 0:
            entry, hit = found, order
    return entry, hit


@numba.njit(cache=True)
def _draw(
    entries: Entries, entry: int, seed: np.uint64, position: int, law: DraftLaw, drawn: IntArray, log_qs: FloatArray
) -> int:
    """Write an entry's ids in draw order with their log-probabilities; return how many the law leaves."""
    _, _, n_ids, ids, sums = entries
    n = min(EXPOSED, int(n_ids[entry]))
    if law[0] == 0 or n == 0:
        drawn[:n], log_qs[:n] = ids[entry, :n], 0.0
        return n
    log_q = _processed(sums[entry, :n], law)
    n = len(log_q)
    noise = gumbels(seed, position, ids[entry, :n].astype(np.int64))
    score = np.add(log_q, noise)
    for rank in range(n):
        best = np.argmax(score)
        drawn[rank], log_qs[rank] = ids[entry, best], log_q[best]
        score[best] = -np.inf
    return n


@numba.njit(cache=True)
def _processed(sums: NDArray[np.int64], law: DraftLaw) -> NDArray[np.float64]:
    """Return the log-probabilities of what temperature, top-k, top-p and min-p leave of sums in falling order."""
    temperature, top_k, top_p, min_p = law
    weight = (sums / sums[0]) ** (1.0 / temperature)
    n = min(top_k, len(weight)) if top_k > 0 else len(weight)
    nucleus, mass, kept = top_p * weight[:n].sum(), 0.0, 0
    while kept < n and mass < nucleus and weight[kept] >= min_p and weight[kept] > 0:
        mass += weight[kept]
        kept += 1
    log_q: NDArray[np.float64] = np.log(weight[:kept]) - math.log(mass)
    return log_q
