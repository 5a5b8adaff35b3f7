"""What a table says after a context: back-off to the longest known one, its law under the run's sampling law, the draws."""

from __future__ import annotations

import math
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.policies.drafting.gumbel import gumbels
from tts_orch.policies.drafting.ngram_kernels import (
    IDS,
    SUMS,
    Columns,
    context_key,
    entry_span,
    find_entry,
    touch,
)
from tts_orch.policies.drafting.ngram_table import EXPOSED
from tts_orch.policies.drafting.stand_kinds import DETERMINISTIC, GREEDY, KEYED, kind_of
from tts_orch.records import IntArray

__all__ = ["DraftLaw", "Draws", "draw_children", "new_draws"]

DraftLaw: TypeAlias = tuple[float, int, float, float]
"""What a stored raw law is processed with: temperature, top_k, top_p and min_p of `SamplingParams`."""

Draws: TypeAlias = tuple[IntArray, NDArray[np.float64], IntArray, IntArray, NDArray[np.float64]]
"""By node, `[n, EXPOSED]`: tokens, their log_q and kinds in draw order; ids and probabilities of the law."""


@numba.njit(cache=True)
def new_draws(n_nodes: int) -> Draws:
    """Return room for the draws of so many nodes."""
    shape = (n_nodes, EXPOSED)
    return (
        np.empty(shape, np.int32),
        np.empty(shape, np.float64),
        np.empty(shape, np.int32),
        np.zeros(shape, np.int32),
        np.zeros(shape, np.float64),
    )


@numba.njit(cache=True)
def draw_children(
    columns: Columns,
    context: IntArray,
    salt: np.uint64,
    lowest_order: int,
    law: DraftLaw,
    mode: int,
    seed: np.uint64,
    position: int,
    draws: Draws,
    node: int,
) -> tuple[int, int]:
    """Write the candidate children of a node into `draws[node]`, in draw order.

    Args:
        columns: the table.
        context: `[ORDERS]` last tokens, most recent first, -1 where the text is shorter.
        salt: the scope's.
        lowest_order: shortest context that may hit.
        law: how the stored law is processed.
        mode: how children are drawn (`stand_kinds`).
        seed: and
        position: of the noise.
        draws: where to write.
        node: row of it.

    Returns:
        How many there are, and the order that hit; 0 and 0 where no context is known.
    """
    entry, order = _back_off(columns, context, salt, lowest_order)
    if entry < 0:
        return 0, 0
    touch(columns, entry)
    count, start, n_ids = entry_span(columns, entry)
    n = min(EXPOSED, n_ids)
    if n == 0:
        return 0, order
    ids, sums = columns[IDS][start : start + n], columns[SUMS][start : start + n]
    log_q = _processed(sums, law)
    n = len(log_q)
    score = log_q
    if mode != GREEDY and mode != DETERMINISTIC:
        score = log_q + gumbels(seed, position, ids[:n].astype(np.int64))
    tokens, log_qs, kinds, law_ids, law_probs = draws
    ranked = np.argsort(-score, kind="mergesort")
    for rank in range(n):
        drawn = ranked[rank]
        tokens[node, rank], log_qs[node, rank] = ids[drawn], log_q[drawn]
        law_ids[node, rank], law_probs[node, rank] = ids[rank], math.exp(log_q[rank])
        shown, gap = drawn, _gap(score, ranked, rank)
        if mode != KEYED and mode != GREEDY:  # what was drawn must not matter
            shown = 0 if mode != DETERMINISTIC else drawn
            gap = log_q[0] - log_q[1] if n > 1 else 99.0
        kinds[node, rank] = kind_of(mode, order, count, rank, math.exp(log_q[shown]), gap)
    law_probs[node, n:] = 0.0
    return n, order


@numba.njit(cache=True)
def _gap(score: NDArray[np.float64], ranked: NDArray[np.int64], rank: int) -> float:
    """Return how far the first leads the second, or how far a later one is behind the first."""
    if len(ranked) == 1:
        return 99.0
    return score[ranked[0]] - score[ranked[max(rank, 1)]]


@numba.njit(cache=True)
def _back_off(columns: Columns, context: IntArray, salt: np.uint64, lowest_order: int) -> tuple[int, int]:
    """Return the entry of the longest known context, and its order; -1 and 0 for none."""
    entry, hit, key = -1, 0, np.uint64(0)
    for order in range(1, ORDERS + 1):
        if context[order - 1] < 0:
            break
        key = context_key(key, context[order - 1], order)
        if order >= lowest_order:
            found = find_entry(columns, key ^ salt)
            if found >= 0:
                entry, hit = found, order
    return entry, hit


@numba.njit(cache=True)
def _processed(sums: NDArray[np.uint32], law: DraftLaw) -> NDArray[np.float64]:
    """Return the log-probabilities of what temperature, top-k, top-p and min-p leave of sums in falling order.

    At temperature 0 candidates stay in order with their raw probabilities, so that a tree has width.
    """
    temperature, top_k, top_p, min_p = law
    if temperature == 0.0:
        temperature, top_k, top_p, min_p = 1.0, 0, 1.0, 0.0
    weight = (sums / sums[0]) ** (1.0 / temperature)
    n = min(top_k, len(weight)) if top_k > 0 else len(weight)
    nucleus, mass, kept = top_p * weight[:n].sum(), 0.0, 0
    while kept < n and mass < nucleus and weight[kept] >= min_p and weight[kept] > 0:
        mass += weight[kept]
        kept += 1
    log_q: NDArray[np.float64] = np.log(weight[:kept]) - math.log(mass)
    return log_q
