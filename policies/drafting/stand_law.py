"""What a table says after a context: back-off to the longest known one, its law under the run's sampling law, the draws.

The functions are inlined into the growth of trees: as calls, with references to a dozen arrays counted in each, they take a
third more time.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.policies.drafting.gumbel import draft_gumbel
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
from tts_orch.policies.drafting.stand_kinds import DETERMINISTIC, KEYED, REJECTION, kind_of
from tts_orch.records import IntArray

__all__ = ["CANDIDATES", "ORDER", "DraftLaw", "Draws", "draw_children", "kind_at", "new_draws"]

DraftLaw: TypeAlias = tuple[float, int, float, float]
"""What a stored raw law is processed with: temperature, top_k, top_p and min_p of `SamplingParams`."""

Draws: TypeAlias = tuple[IntArray, IntArray, NDArray[np.float64], NDArray[np.float64], IntArray, NDArray[np.float64]]
"""By node: `[n, 3]` candidates, order that hit (0 for none), observations of that context; and, each `[n, EXPOSED]`, tokens,
log_q and scores in draw order, ids and log-probabilities of the law."""

CANDIDATES: Final = 0
ORDER: Final = 1
_COUNT: Final = 2

_NO_RIVAL: Final = 99.0
"""The gap of a candidate without siblings."""


@numba.njit(cache=True)
def new_draws(n_nodes: int) -> Draws:
    """Return room for the draws of so many nodes."""
    shape = (n_nodes, EXPOSED)
    return (
        np.zeros((n_nodes, 3), np.int32),
        np.empty(shape, np.int32),
        np.empty(shape, np.float64),
        np.empty(shape, np.float64),
        np.zeros(shape, np.int32),
        np.full(shape, -np.inf),
    )


@numba.njit(inline="always")
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
) -> None:
    """Write the candidate children of a node into its row of `draws`, in draw order; none where no context is known.

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
    """
    entry, order = _back_off(columns, context, salt, lowest_order)
    if entry < 0:
        return
    touch(columns, entry)
    count, start, n_ids = entry_span(columns, entry)
    facts, tokens, log_qs, scores, law_ids, law_log_probs = draws
    ids, sums = columns[IDS][start : start + n_ids], columns[SUMS][start : start + n_ids]
    n = _process(sums, law, law_log_probs[node])
    facts[node, CANDIDATES], facts[node, ORDER], facts[node, _COUNT] = n, order, count
    is_noisy = mode in (KEYED, REJECTION)
    for i in range(n):
        law_ids[node, i], log_q = ids[i], law_log_probs[node, i]
        score = log_q + draft_gumbel(seed, position, ids[i]) if is_noisy else log_q
        _insert(ids[i], log_q, score, i, tokens[node], log_qs[node], scores[node])


@numba.njit(inline="always")
def kind_at(draws: Draws, node: int, rank: int, mode: int) -> int:
    """Return the kind of a node's candidate of this rank."""
    facts, _, log_qs, scores, _, law_log_probs = draws
    shown, gap = log_qs[node, rank], scores[node, 0] - scores[node, max(rank, 1)]
    if mode in (REJECTION, DETERMINISTIC):
        gap = law_log_probs[node, 0] - law_log_probs[node, 1]
    if mode == REJECTION:  # what was drawn must not matter
        shown = law_log_probs[node, 0]
    if facts[node, CANDIDATES] == 1:
        gap = _NO_RIVAL
    return kind_of(mode, facts[node, ORDER], facts[node, _COUNT], rank, math.exp(shown), gap)


@numba.njit(inline="always")
def _insert(
    token: int,
    log_q: float,
    new_score: float,
    n: int,
    tokens: IntArray,
    log_qs: NDArray[np.float64],
    scores: NDArray[np.float64],
) -> None:
    """Insert a candidate behind those with at least its score; all are sorted by falling score."""
    rank = n
    while rank > 0 and scores[rank - 1] < new_score:
        tokens[rank], log_qs[rank], scores[rank] = tokens[rank - 1], log_qs[rank - 1], scores[rank - 1]
        rank -= 1
    tokens[rank], log_qs[rank], scores[rank] = token, log_q, new_score


@numba.njit(inline="always")
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


@numba.njit(inline="always")
def _process(sums: NDArray[np.uint32], law: DraftLaw, log_probs: NDArray[np.float64]) -> int:
    """Write the log-probabilities of what temperature, top-k, top-p and min-p leave of sums in falling order.

    At temperature 0 candidates stay in order with their raw probabilities, so that a tree has width.

    Returns:
        How many are left; -inf is written behind them.
    """
    temperature, top_k, top_p, min_p = law
    if temperature == 0.0:
        temperature, top_k, top_p, min_p = 1.0, 0, 1.0, 0.0
    n, total, weight = min(EXPOSED, len(sums)), 0.0, np.empty(EXPOSED, np.float64)
    n = min(top_k, n) if top_k > 0 else n
    for i in range(n):
        log_probs[i] = math.log(sums[i] / sums[0]) / temperature
        weight[i] = math.exp(log_probs[i])
        total += weight[i]
    kept, mass = 0, 0.0
    while kept < n and mass < top_p * total and weight[kept] >= min_p and weight[kept] > 0:
        mass += weight[kept]
        kept += 1
    log_probs[:kept] -= math.log(mass)
    log_probs[kept:] = -math.inf
    return kept
