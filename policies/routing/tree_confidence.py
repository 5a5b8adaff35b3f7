"""How sure a drafter is of its tree, by the law it drew or took the nodes from.

Source: arXiv 2603.27027: confidence is the mean probability of the nodes given the root; entropy that of the laws they come
from. Ours: confidence is the sum of these probabilities. It orders trees of one size as their mean does, and where the node
budget cuts trees to different sizes the mean prefers the smallest, since probabilities fall along paths. A tree holds its
candidates' share of a law and not the rest, which counts as one more candidate. And of nodes that the verifier's noise chose it
is still the law's probability that counts: the noise lifts unlikely tokens in every tree alike, so what it makes of them tells
drafters apart far worse than how often it found their law's likely ones.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import FloatArray, IntArray

__all__ = ["confidence", "mean_entropy", "path_log_promises"]


def path_log_promises(tree: DraftTree) -> NDArray[np.float64]:
    """Return `[n]` log-probability that the verifier gets to each node: the sum of what the nodes of its path promise."""
    return _path_sums(tree.log_q if tree.log_promise is None else tree.log_promise, tree.parent)


def confidence(tree: DraftTree) -> float:
    """Return how many tokens the law expects to be accepted: the probabilities of the nodes below the root, added up."""
    return _total_probability(tree.log_q, tree.parent)


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


@numba.njit(cache=True)
def _path_sums(values: FloatArray, parent: IntArray) -> NDArray[np.float64]:
    """Add up, for each node, what the nodes below the root on its path have."""
    sums = np.zeros(len(values), np.float64)
    for node in range(1, len(values)):
        sums[node] = sums[parent[node]] + values[node]
    return sums


@numba.njit(cache=True)
def _total_probability(log_q: FloatArray, parent: IntArray) -> float:
    """Return the sum of the probabilities of the nodes below the root."""
    return np.exp(_path_sums(log_q, parent)).sum() - 1.0
