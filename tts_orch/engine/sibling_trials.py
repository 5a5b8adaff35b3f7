"""The rule of rejection mode at one node: how likely each drafted child is accepted, and what is left if none is.

Siblings are tried in the order they were drawn in. `p_1 = p` is the target's law, `q_j` the law that sibling `x_j` was
drawn from; it is accepted with probability `min(1, p_j(x_j) / q_j(x_j))`, else the target's law becomes
`p_{j+1} = norm((p_j - q_j)+)`. Only ids that some `q_j` knows ever change their share, so beside these the vocabulary
counts as one mass. No coin is tossed here.

Source: arXiv 2305.09781, 2402.14160, 2402.12374 (recursive rejection without replacement); laws of several kinds in any
order that was fixed before the draws are covered by the same induction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import IntArray

__all__ = ["judge", "judge_children"]

_NO_LAWS = (np.zeros((0, 0), np.int32), np.zeros((0, 0), np.float64))


def judge_children(nodes: Sequence[tuple[DraftTree, int]], weights: torch.Tensor) -> list[NDArray[np.float64]]:
    """Judge the children of one node a row.

    Args:
        nodes: `[R]` trees and the node of each.
        weights: `[R, V]` log-weights of the processed law after each node. In place they become those of the law of
            the next token once every child is rejected; a row whose node has no children stays as it is.

    Returns:
        For each row, in draw order, the probability that a child is accepted once those before it are rejected.
    """
    siblings = [_siblings(tree, tree.children[node]) for tree, node in nodes]
    n_touched = [len(ids) for ids, _, _ in siblings]
    if not any(n_touched):
        return [np.zeros(0)] * len(nodes)
    rows = torch.from_numpy(np.repeat(np.arange(len(nodes)), n_touched)).to(weights.device)
    touched = torch.from_numpy(np.concatenate([ids for ids, _, _ in siblings])).to(weights.device)
    log_p = weights[rows, touched].double().cpu().numpy()
    weights[rows, touched] = -math.inf
    log_rest = weights.logsumexp(dim=1).double().cpu().numpy()
    parts = np.split(log_p, np.cumsum(n_touched)[:-1])
    judged = [judge(part, rest, *laws) for part, rest, (_, *laws) in zip(parts, log_rest, siblings, strict=True)]
    weights[rows, touched] = torch.from_numpy(np.concatenate([left for _, left in judged])).to(weights)
    return [acceptances for acceptances, _ in judged]


def _siblings(tree: DraftTree, children: Sequence[int]) -> tuple[IntArray, IntArray, NDArray[np.float64]]:
    """Return what `_laws_at_draw` does for these children of a tree."""
    tokens = tree.token[children].astype(np.int64)
    if tree.laws is None:
        return _laws_at_draw(tokens, np.full(len(children), -1), *_NO_LAWS)
    return _laws_at_draw(tokens, tree.laws.of_node[children].astype(np.int64), tree.laws.ids, tree.laws.probs)


@njit(nogil=True, cache=True)
def _laws_at_draw(
    tokens: NDArray[np.int64], of_child: NDArray[np.int64], law_ids: IntArray, law_probs: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return what each of `k` siblings was drawn from.

    Returns:
        `[m]` all ids that may be drawn, ascending; `[k]` the column of each sibling's token; `[k, m]` the law of each
        sibling: its row without the tokens of earlier siblings, renormalised, or all on its token if it has no row. A
        law without mass is zero.
    """
    ids = tokens
    for row in np.unique(of_child):
        if row >= 0:
            ids = np.concatenate((ids, law_ids[row][law_probs[row] > 0].astype(np.int64)))
    ids = np.unique(ids)
    drawn = np.searchsorted(ids, tokens)
    q = np.zeros((len(tokens), len(ids)))
    for rank in range(len(tokens)):
        row = of_child[rank]
        if row < 0:
            q[rank, drawn[rank]] = 1.0
            continue
        is_known = law_probs[row] > 0
        q[rank][np.searchsorted(ids, law_ids[row][is_known])] = law_probs[row][is_known]
        q[rank][drawn[:rank]] = 0.0
        q[rank] /= max(q[rank].sum(), np.finfo(np.float64).tiny)
    return ids, drawn, q


@njit(nogil=True, cache=True)
def judge(
    log_p: NDArray[np.float64], log_rest: float, drawn: NDArray[np.int64], q: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Try `k` siblings in turn.

    Args:
        log_p: `[m]` log-weights of the target's law on the ids that siblings may hold.
        log_rest: log of the weight of all other ids.
        drawn: `[k]` column of each sibling's token.
        q: `[k, m]` law of each sibling.

    Returns:
        `[k]` acceptance probabilities, and `[m]` log-weights beside `log_rest` after all are rejected. A rejection that
        rounding alone makes possible (p = q) leaves the law as it is.
    """
    acceptances = np.zeros(len(drawn))
    if len(drawn) == 0:
        return acceptances, log_p
    scale = max(log_p.max(), log_rest)
    p, rest = np.exp(log_p - scale), math.exp(log_rest - scale)
    for rank in range(len(drawn)):
        mass = p.sum() + rest
        mass_drawn, mass_q = p[drawn[rank]], mass * q[rank, drawn[rank]]
        if mass_q > 0:
            acceptances[rank] = min(1.0, mass_drawn / mass_q)
        left = np.maximum(p - mass * q[rank], 0.0)
        if left.sum() + rest > 0:
            p = left
    return acceptances, np.log(p) + scale
