"""Candidates for the children of draft nodes, from a network's laws: the likeliest tokens, or those that keyed noise favours.

A keyed verifier takes the argmax of the target's log-probability plus noise, so with the same noise on the drafter's law the
likeliest candidates are the ones to draft (arXiv 2408.07978).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.gumbel import draft_gumbel
from tts_orch.records import IntArray, SamplingParams

__all__ = ["Candidates", "Parents", "candidate_priors", "choose_candidates"]

LIKELIEST: Final = 0
KEYED: Final = 1
GREEDY: Final = 2
"""Modes: the likeliest tokens for a target that samples, those that noise favours, the likeliest for a greedy target."""

_MODES: Final = 3
_DEPTHS: Final = 3
_RANKS: Final = 3
_PROMISES: Final = 12


@dataclass(frozen=True, slots=True)
class Parents:
    """Nodes that get children.

    Attributes:
        laws: `[r]` sampling law of the trajectory of each.
        is_keyed: `[r]` whether candidates are chosen with the verifier's noise.
        seeds: `[r]` uint64, of that noise,
        positions: `[r]` and the absolute position of the children in their trajectory.
        depths: `[r]` distance of the children from the root.
    """

    laws: list[SamplingParams]
    is_keyed: NDArray[np.bool_]
    seeds: NDArray[np.uint64]
    positions: NDArray[np.int64]
    depths: IntArray


@dataclass(frozen=True, slots=True)
class Candidates:
    """Children of `r` nodes, `[r, k]` each, the most promising first.

    Attributes:
        token: int32 ids, all of a row different.
        log_q: log-probability under the network's law.
        log_promise: log-probability that the verifier draws the token, as far as the network knows; -inf for no candidate.
        kind: int32, see `candidate_priors`.
    """

    token: IntArray
    log_q: NDArray[np.float64]
    log_promise: NDArray[np.float64]
    kind: IntArray


def choose_candidates(ids: IntArray, log_q: NDArray[np.floating], parents: Parents, n: int) -> Candidates:
    """Choose up to `n` children for each node.

    Args:
        ids: `[r, m]` the likeliest tokens after each node, in any order.
        log_q: `[r, m]` their log-probabilities at temperature 1, over the whole vocabulary.
        parents: the nodes.
        n: most children of a node.
    """
    own: NDArray[np.float64] = np.minimum(log_q.astype(np.float64), 0.0)
    is_greedy = np.array([law.temperature == 0 for law in parents.laws], bool)
    is_keyed = parents.is_keyed & ~is_greedy
    score = own.copy()
    if is_keyed.any():
        laws = [law for law, keyed in zip(parents.laws, is_keyed, strict=True) if keyed]
        noise = _noise(parents.seeds[is_keyed], parents.positions[is_keyed], ids[is_keyed])
        score[is_keyed] = _log_softmax(_processed(own[is_keyed], laws) + noise)
    order = np.lexsort((ids, -score), axis=1)[:, :n]
    mode = np.where(is_greedy, GREEDY, np.where(is_keyed, KEYED, LIKELIEST))
    log_promise: NDArray[np.float64] = np.take_along_axis(score, order, axis=1)
    return Candidates(
        token=np.take_along_axis(ids, order, axis=1).astype(np.int32),
        log_q=np.take_along_axis(own, order, axis=1),
        log_promise=log_promise,
        kind=_kinds(mode, parents.depths, np.exp(log_promise)),
    )


def candidate_priors() -> NDArray[np.float64]:
    """Return acceptance rates to begin with, `[groups, kinds of a group]`.

    Groups differ in mode and depth (1, 2, more), kinds in draw rank (0, 1, more) and promise. A drafter's confidence is close to the
    rate at which its nodes are accepted (arXiv 2406.16858); how close is learned for each group.
    """
    promise = (np.arange(_PROMISES) + 0.5) / _PROMISES
    return np.tile(promise, (_MODES * _DEPTHS, _RANKS))


def _kinds(mode: NDArray[np.int64], depth: IntArray, promise: NDArray[np.float64]) -> IntArray:
    group = mode * _DEPTHS + np.minimum(depth, _DEPTHS) - 1
    rank = np.minimum(np.arange(promise.shape[1]), _RANKS - 1)
    bucket = np.minimum((promise * _PROMISES).astype(np.int32), _PROMISES - 1)
    kind: IntArray = ((group[:, None] * _RANKS + rank) * _PROMISES + bucket).astype(np.int32)
    return kind


def _processed(log_q: NDArray[np.float64], laws: list[SamplingParams]) -> NDArray[np.float64]:
    """Return `[r, m]` the sampling laws on these candidates alone; penalties and biases are left to the verifier."""
    temperature, top_k, top_p, min_p = (
        np.array([getattr(law, name) for law in laws], np.float64)[:, None]
        for name in ("temperature", "top_k", "top_p", "min_p")
    )
    scaled = _log_softmax(log_q / temperature)
    probability = np.exp(scaled)
    order = np.argsort(-probability, axis=1, kind="stable")
    falling = np.take_along_axis(probability, order, axis=1)
    is_kept = falling >= min_p * falling[:, :1]
    is_kept &= (top_k == 0) | (np.arange(falling.shape[1]) < top_k)
    is_kept &= np.cumsum(falling, axis=1) - falling < top_p
    np.put_along_axis(scaled, order, np.where(is_kept, np.take_along_axis(scaled, order, axis=1), -np.inf), axis=1)
    return scaled


def _log_softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = scores - scores.max(axis=1, keepdims=True)
    normalised: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised


@numba.njit(cache=True)
def _noise(seeds: NDArray[np.uint64], positions: NDArray[np.int64], ids: IntArray) -> NDArray[np.float64]:
    """Return `[r, m]` the verifier's noise of these ids."""
    noise = np.empty(ids.shape, np.float64)
    for row in range(len(ids)):
        for column in range(ids.shape[1]):
            noise[row, column] = draft_gumbel(seeds[row], positions[row], ids[row, column])
    return noise
