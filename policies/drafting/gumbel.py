"""Gumbel noise keyed by (trajectory seed, position, token id), and the choices that follow from it.

The token of a trajectory at a position is the argmax of log-weight plus noise, which samples the law exactly and makes
the trajectory a pure function of its seed. Verifier and drafters read the same noise here.

The one formula: with high word `h` and low word `l` of `seeds.noise_words`, `v = (h + (l + 1/2) / 2^32) / 2^32` is uniform
in (0, 1), `E = -log(1 - v)` exponential and `G = -log(E)` Gumbel, all in float64.

Source: arXiv 2408.07978 (position-keyed coupling); Gumbel-max trick as in arXiv 1411.0030.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tts_orch.seeds import PHILOX_M0, PHILOX_M1, PHILOX_ROUNDS, PHILOX_W0, PHILOX_W1

__all__ = ["coins", "draft_gumbel", "draw_group", "fill_words", "gumbel", "gumbels", "keyed_argmax", "noise_groups"]

_M0: Final = np.uint64(PHILOX_M0)
_M1: Final = np.uint64(PHILOX_M1)
_W0: Final = np.uint64(PHILOX_W0)
_W1: Final = np.uint64(PHILOX_W1)
_MASK: Final = np.uint64(0xFFFFFFFF)
_WORD: Final = np.uint64(32)
_BLOCK: Final = 256
_LOG2_E: Final = np.float32(1 / math.log(2))
_MANTISSA: Final = np.float32(2**23)
_BIAS_AND_SHIFT: Final = 127 + 31


def gumbel(seed: int, position: int, token_ids: Sequence[int] | NDArray[np.integer]) -> NDArray[np.float64]:
    """Return the noise `[n]` of a few token ids at one absolute position."""
    noise: NDArray[np.float64] = gumbels(np.uint64(seed), position, np.asarray(token_ids, np.int64))
    return noise


def coins(seed: int, position: int, n: int) -> NDArray[np.float64]:
    """Return `n` uniforms in [0, 1) that share no bits with each other nor with the Gumbel noise of the position."""
    uniforms: NDArray[np.float64] = _coins(np.uint64(seed), position, n)
    return uniforms


def keyed_argmax(
    logits: NDArray[np.floating], seeds: NDArray[np.uint64], positions: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Sample a token from every row: argmax over ids of logit + Gumbel noise, the lowest of equals.

    The result of a row depends on that row alone.

    Args:
        logits: `[R, V]` log-weights of any normalisation, float32 or float64; -inf excludes an id.
        seeds: `[R]` trajectory seeds.
        positions: `[R]` absolute positions of the tokens to be drawn.

    Returns:
        `[R]` token ids; -1 where a row has no id to draw.
    """
    winners = np.full(len(logits), -1, np.int64)
    order, starts = noise_groups(seeds, positions)
    for group in range(len(starts) - 1):
        draw_group(group, logits, seeds, positions, order, starts, winners)
    return winners


def noise_groups(
    seeds: NDArray[np.uint64], positions: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gather the rows that share their noise.

    Returns:
        `order` `[R]` and `starts` `[G + 1]`: the rows `order[starts[g]:starts[g + 1]]` have one seed and position.
    """
    order = np.lexsort((positions, seeds))
    is_first = np.ones(len(order), bool)
    is_first[1:] = (np.diff(seeds[order]) != 0) | (np.diff(positions[order]) != 0)
    return order, np.append(np.flatnonzero(is_first), len(order))


@njit(inline="always")
def _philox(x0, x1, x2, k0, k1):  # type: ignore[no-untyped-def]
    """`seeds.philox` of the counter `(x0, x1, x2, 0)`; all numbers are uint64."""
    x3 = np.uint64(0)
    for _ in range(PHILOX_ROUNDS):
        low, high = x0 * _M0, x2 * _M1
        x0, x1, x2, x3 = (high >> _WORD) ^ x1 ^ k0, high & _MASK, (low >> _WORD) ^ x3 ^ k1, low & _MASK
        k0, k1 = (k0 + _W0) & _MASK, (k1 + _W1) & _MASK
    return x0, x1, x2, x3


@njit(nogil=True, cache=True)
def fill_words(seed: np.uint64, position: int, first: int, out: NDArray[np.uint32]) -> None:
    """Fill `out` with the high words of the ids from `first` on; `first` and its length are multiples of 4.

    Four ids a Philox call, and LLVM makes vector code of the loop.
    """
    k0, k1, x1 = seed & _MASK, seed >> _WORD, np.uint64(position)
    for i in range(len(out) // 4):
        words = _philox(np.uint64(first // 4 + i), x1, np.uint64(0), k0, k1)
        out[4 * i] = np.uint32(words[0])
        out[4 * i + 1] = np.uint32(words[1])
        out[4 * i + 2] = np.uint32(words[2])
        out[4 * i + 3] = np.uint32(words[3])


@njit(nogil=True, cache=True)
def _word(seed, position, plane, token_id):  # type: ignore[no-untyped-def]
    words = _philox(np.uint64(token_id // 4), np.uint64(position), np.uint64(plane), seed & _MASK, seed >> _WORD)
    return words[token_id % 4]


@njit(nogil=True, cache=True)
def _gumbel(high: int, low: int) -> float:
    uniform = (np.float64(high) + (np.float64(low) + 0.5) * 2.0**-32) * 2.0**-32
    return -math.log(-math.log1p(-uniform))


@njit(nogil=True, cache=True)
def draft_gumbel(seed: int, position: int, token_id: int) -> float:
    """Return the noise of one token id from its high word alone, for compiled callers; `seed` is a uint64.

    A fine uniform for drawing drafts, and next to the verifier's noise: the low word moves it by 2^-32 at most.
    """
    return _gumbel(_word(seed, position, 0, token_id), 1 << 31)


@njit(nogil=True, cache=True)
def gumbels(seed: int, position: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what `gumbel` does, for compiled callers; `seed` is a uint64."""
    noise = np.empty(len(token_ids), np.float64)
    for i in range(len(token_ids)):
        noise[i] = _gumbel(_word(seed, position, 0, token_ids[i]), _word(seed, position, 1, token_ids[i]))
    return noise


@njit(nogil=True, cache=True)
def _coins(seed: int, position: int, n: int) -> NDArray[np.float64]:
    """Return 53 bits each: planes 2 and 3 of `seeds.noise_words` hold their high and low words."""
    uniforms = np.empty(n, np.float64)
    for i in range(n):
        bits = (_word(seed, position, 2, i) << _WORD) | _word(seed, position, 3, i)
        uniforms[i] = (bits >> np.uint64(11)) * 2.0**-53
    return uniforms


@njit(inline="always")
def _may_win(logit, word, best):  # type: ignore[no-untyped-def]
    """Tell, mostly, whether an id can beat the best score so far; never deny it to one that can.

    A winner needs `E < exp(logit - best)`, and `E > v >= h / 2^32`. The bits of a float32, read as an integer, are at
    most its binary logarithm (times 2^23, with the bias 127), so no exp and no log is taken; `h >> 1` is what vector
    units convert fastest. The margin covers rounding to float32.
    """
    log2_word = np.float32(np.float32(np.int32(word >> np.uint32(1))).view(np.int32))
    margin = np.float32(_BIAS_AND_SHIFT + 0.001 + abs(best) * 2.0**-21)
    return log2_word <= ((np.float32(logit) - np.float32(best)) * _LOG2_E + margin) * _MANTISSA


@njit(nogil=True, cache=True)
def _scan(logits, words, first, seed, position, best, winner):  # type: ignore[no-untyped-def]
    """Continue one row's argmax over a block of ids; return the best score so far and its id."""
    is_worth_a_look = False
    for i in range(len(logits)):
        is_worth_a_look |= _may_win(logits[i], words[i], best)
    if not is_worth_a_look:
        return best, winner
    for i in range(len(logits)):
        if _may_win(logits[i], words[i], best):
            score = logits[i] + _gumbel(words[i], _word(seed, position, 1, first + i))
            if score > best:
                best, winner = score, first + i
    return best, winner


@njit(nogil=True, cache=True)
def _has_support(logits: NDArray[np.floating]) -> bool:
    has_support = False
    for i in range(len(logits)):
        has_support |= logits[i] > -np.inf
    return has_support


@njit(nogil=True, cache=True)
def draw_group(group, logits, seeds, positions, order, starts, winners):  # type: ignore[no-untyped-def]
    """Draw the rows of one noise group into `winners` (-1 before); they share each block of noise while it is hot."""
    rows = order[starts[group] : starts[group + 1]]
    seed, position = seeds[rows[0]], positions[rows[0]]
    best = np.full(len(rows), -np.inf)
    words = np.empty(_BLOCK, np.uint32)
    for first in range(0, logits.shape[1], _BLOCK):
        is_filled = False
        for i in range(len(rows)):
            block = logits[rows[i], first : first + _BLOCK]
            if not _has_support(block):
                continue
            if not is_filled:
                fill_words(seed, position, first, words)
                is_filled = True
            best[i], winners[rows[i]] = _scan(block, words, first, seed, position, best[i], winners[rows[i]])
