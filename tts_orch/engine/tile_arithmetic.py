"""The fixed arithmetic of canonical attention, one query against one block of 64 positions.

A score is one chain of fused multiply-adds over the even dimensions plus one over the odd; the weights of a block are
summed by a fixed tree; its values are added by one chain over the even positions plus one over the odd.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.engine.fixed_math import exp, fma, tanh
from tts_orch.engine.lanes import LANES, add_lanes, fma_lanes, load_lanes, prefetch, splat, store_lanes
from tts_orch.records import FloatArray

__all__ = ["add_values", "merge", "score_few", "score_tile", "softmax_weights"]

_PAGE = 64
_NOTHING = np.float32(-np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@njit(cache=True, nogil=True, forceinline=True)
def score_tile(
    query: FloatArray, q: int, head_dim: int, pages: FloatArray, tile: int, ahead: int, step: int, scores: FloatArray
) -> None:
    """Scores of the 64 positions of a key tile: the chains of even and of odd dimensions, added.

    Meanwhile it fetches from element `ahead` on, `step` elements each pair of dimensions.
    """
    a0 = a1 = b0 = b1 = c0 = c1 = e0 = e1 = splat(_ZERO)
    for d in range(0, head_dim - 1, 2):
        even, odd = splat(query[q + d]), splat(query[q + d + 1])
        row = tile + d * _PAGE
        a0 = fma_lanes(even, load_lanes(pages, row), a0)
        b0 = fma_lanes(even, load_lanes(pages, row + LANES), b0)
        c0 = fma_lanes(even, load_lanes(pages, row + 2 * LANES), c0)
        e0 = fma_lanes(even, load_lanes(pages, row + 3 * LANES), e0)
        a1 = fma_lanes(odd, load_lanes(pages, row + 4 * LANES), a1)
        b1 = fma_lanes(odd, load_lanes(pages, row + 5 * LANES), b1)
        c1 = fma_lanes(odd, load_lanes(pages, row + 6 * LANES), c1)
        e1 = fma_lanes(odd, load_lanes(pages, row + 7 * LANES), e1)
        prefetch(pages, ahead)
        prefetch(pages, ahead + LANES)
        ahead += step
    if head_dim % 2:
        last, row = splat(query[q + head_dim - 1]), tile + (head_dim - 1) * _PAGE
        a0 = fma_lanes(last, load_lanes(pages, row), a0)
        b0 = fma_lanes(last, load_lanes(pages, row + LANES), b0)
        c0 = fma_lanes(last, load_lanes(pages, row + 2 * LANES), c0)
        e0 = fma_lanes(last, load_lanes(pages, row + 3 * LANES), e0)
    store_lanes(scores, 0, add_lanes(a0, a1))
    store_lanes(scores, LANES, add_lanes(b0, b1))
    store_lanes(scores, 2 * LANES, add_lanes(c0, c1))
    store_lanes(scores, 3 * LANES, add_lanes(e0, e1))


@njit(cache=True, nogil=True)
def score_few(
    query: FloatArray, q: int, head_dim: int, pages: FloatArray, tile: int, n_lanes: int, scores: FloatArray
) -> None:
    """Scores of the first `n_lanes` positions of a key tile (and some after them): the same chains."""
    for start in range(0, n_lanes, LANES):
        a0 = a1 = splat(_ZERO)
        for d in range(0, head_dim - 1, 2):
            row = tile + d * _PAGE + start
            a0 = fma_lanes(splat(query[q + d]), load_lanes(pages, row), a0)
            a1 = fma_lanes(splat(query[q + d + 1]), load_lanes(pages, row + _PAGE), a1)
        if head_dim % 2:
            row = tile + (head_dim - 1) * _PAGE + start
            a0 = fma_lanes(splat(query[q + head_dim - 1]), load_lanes(pages, row), a0)
        store_lanes(scores, start, add_lanes(a0, a1))


@njit(cache=True, nogil=True, forceinline=True)
def _larger(a: np.float32, b: np.float32) -> np.float32:
    return a if a > b else b


@njit(cache=True, nogil=True, forceinline=True)
def _visible(score: np.float32, lane: int, first: int, last: int) -> np.float32:
    return score if (lane >= first) & (lane < last) else _NOTHING


@njit(cache=True, nogil=True, forceinline=True)
def softmax_weights(
    scores: FloatArray, first: int, last: int, scaling: np.float32, softcap: np.float32
) -> tuple[np.float32, np.float32]:
    """Turn 64 scores into softmax weights relative to the largest of the block; that maximum and their sum.

    The sum is a fixed tree, halves added to halves. `scores` has 16 places more, for the trees.
    """
    if softcap > _ZERO:
        for lane in range(_PAGE):
            scores[lane] = softcap * tanh(np.float32(np.float32(scores[lane] * scaling) / softcap))
        scaling = _ONE
    for i in range(16):
        a = _visible(np.float32(scores[i] * scaling), i, first, last)
        b = _visible(np.float32(scores[i + 16] * scaling), i + 16, first, last)
        c = _visible(np.float32(scores[i + 32] * scaling), i + 32, first, last)
        e = _visible(np.float32(scores[i + 48] * scaling), i + 48, first, last)
        scores[i], scores[i + 16], scores[i + 32], scores[i + 48] = a, b, c, e
        scores[_PAGE + i] = _larger(_larger(a, c), _larger(b, e))
    for i in range(_PAGE, _PAGE + 8):
        scores[i] = _larger(scores[i], scores[i + 8])
    for i in range(_PAGE, _PAGE + 4):
        scores[i] = _larger(scores[i], scores[i + 4])
    maximum = _larger(_larger(scores[_PAGE], scores[_PAGE + 2]), _larger(scores[_PAGE + 1], scores[_PAGE + 3]))
    for i in range(16):
        a, b = exp(np.float32(scores[i] - maximum)), exp(np.float32(scores[i + 16] - maximum))
        c, e = exp(np.float32(scores[i + 32] - maximum)), exp(np.float32(scores[i + 48] - maximum))
        scores[i], scores[i + 16], scores[i + 32], scores[i + 48] = a, b, c, e
        scores[_PAGE + i] = (a + c) + (b + e)
    for i in range(_PAGE, _PAGE + 8):
        scores[i] = scores[i] + scores[i + 8]
    for i in range(_PAGE, _PAGE + 4):
        scores[i] = scores[i] + scores[i + 4]
    return maximum, np.float32((scores[_PAGE] + scores[_PAGE + 2]) + (scores[_PAGE + 1] + scores[_PAGE + 3]))


@njit(cache=True, nogil=True, forceinline=True)
def merge(state: FloatArray, i: int, maximum: np.float32, total: np.float32) -> tuple[np.float32, np.float32]:
    """Add a block to `state[i]` = (maximum, sum of weights) of one query; factors for the old output and the block's."""
    factor = exp(np.float32(-abs(maximum - state[i, 0])))
    keep, add = (factor, _ONE) if maximum > state[i, 0] else (_ONE, factor)
    state[i, 0] = _larger(maximum, state[i, 0])
    state[i, 1] = fma(state[i, 1], keep, np.float32(total * add))
    return keep, add


@njit(cache=True, nogil=True, forceinline=True)
def _add_lanes_to(output: FloatArray, element: int, keep: np.float32, add: np.float32, even: Any, odd: Any) -> None:
    block = fma_lanes(add_lanes(even, odd), splat(add), splat(_ZERO))
    store_lanes(output, element, fma_lanes(load_lanes(output, element), splat(keep), block))


@njit(cache=True, nogil=True, forceinline=True)
def add_values(
    output: FloatArray,
    q: int,
    head_dim: int,
    keep: np.float32,
    add: np.float32,
    weights: FloatArray,
    pages: FloatArray,
    lane_value: NDArray[np.int64],
    first: int,
    last: int,
    ahead: int,
    step: int,
) -> None:
    """`output = output * keep + add * sum(weights * values)` over the lanes `first .. last - 1`, both even.

    The sum is the chain of even lanes and the chain of odd lanes, each in order of position, added.
    """
    d = 0
    while d + 4 * LANES <= head_dim:
        a0 = a1 = b0 = b1 = c0 = c1 = e0 = e1 = splat(_ZERO)
        for lane in range(first, last, 2):
            even, value = splat(weights[lane]), lane_value[lane] + d
            a0 = fma_lanes(even, load_lanes(pages, value), a0)
            b0 = fma_lanes(even, load_lanes(pages, value + LANES), b0)
            c0 = fma_lanes(even, load_lanes(pages, value + 2 * LANES), c0)
            e0 = fma_lanes(even, load_lanes(pages, value + 3 * LANES), e0)
            odd, value = splat(weights[lane + 1]), lane_value[lane + 1] + d
            a1 = fma_lanes(odd, load_lanes(pages, value), a1)
            b1 = fma_lanes(odd, load_lanes(pages, value + LANES), b1)
            c1 = fma_lanes(odd, load_lanes(pages, value + 2 * LANES), c1)
            e1 = fma_lanes(odd, load_lanes(pages, value + 3 * LANES), e1)
            prefetch(pages, ahead)
            prefetch(pages, ahead + LANES)
            ahead += step
        _add_lanes_to(output, q + d, keep, add, a0, a1)
        _add_lanes_to(output, q + d + LANES, keep, add, b0, b1)
        _add_lanes_to(output, q + d + 2 * LANES, keep, add, c0, c1)
        _add_lanes_to(output, q + d + 3 * LANES, keep, add, e0, e1)
        d += 4 * LANES
    while d + LANES <= head_dim:
        a0 = a1 = splat(_ZERO)
        for lane in range(first, last, 2):
            a0 = fma_lanes(splat(weights[lane]), load_lanes(pages, lane_value[lane] + d), a0)
            a1 = fma_lanes(splat(weights[lane + 1]), load_lanes(pages, lane_value[lane + 1] + d), a1)
        _add_lanes_to(output, q + d, keep, add, a0, a1)
        d += LANES
    while d < head_dim:
        even = odd = _ZERO
        for lane in range(first, last, 2):
            even = fma(weights[lane], pages[lane_value[lane] + d], even)
            odd = fma(weights[lane + 1], pages[lane_value[lane + 1] + d], odd)
        output[q + d] = fma(output[q + d], keep, np.float32(np.float32(even + odd) * add))
        d += 1
