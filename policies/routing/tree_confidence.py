"""How sure a drafter is of its tree, by the law it drew or took the nodes from.

Source: arXiv 2603.27027: confidence is the mean probability of the nodes given the root; entropy that of the laws they come
from. Ours: a tree holds its candidates' share of a law and not the rest, which counts as one more candidate.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree

__all__ = ["confidence", "mean_entropy", "path_log_probs"]


def path_log_probs(tree: DraftTree) -> NDArray[np.float64]:
    """Return `[n]` log-probability of each node given the root: the sum of `log_q` along its path."""
    totals: list[float] = tree.log_q.tolist()
    for node, parent in enumerate(tree.parent.tolist()[1:], start=1):
        totals[node] += totals[parent]
    return np.array(totals)


def confidence(tree: DraftTree) -> float:
    """Return the mean probability of the nodes below the root, between 0 and 1; 0 where there are none."""
    return float(np.exp(path_log_probs(tree)[1:]).mean()) if tree.n_nodes > 1 else 0.0


def mean_entropy(tree: DraftTree) -> float:
    """Return the mean, over the nodes below the root, of the entropy in nats of their parents' laws; infinite without nodes."""
    if tree.n_nodes == 1:
        return math.inf
    probability = np.exp(tree.log_q[1:].astype(np.float64))
    parent = tree.parent[1:]
    surprise = np.bincount(parent, _surprise(probability), tree.n_nodes)
    rest = np.maximum(0.0, 1.0 - np.bincount(parent, probability, tree.n_nodes))
    return float((surprise + _surprise(rest))[parent].mean())


def _surprise(probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return `-p log p`."""
    return -probability * np.log(np.maximum(probability, np.finfo(np.float64).tiny))
