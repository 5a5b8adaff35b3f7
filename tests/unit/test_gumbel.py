"""The noise of numba against its formula, the keyed argmax against brute force, and both against the laws they promise.

Statistical tests use fixed seeds; each rejects a right implementation with probability 1e-4 before the seed was fixed.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tests.unit.gumbel_reference import gumbel_top_k
from tts_orch.policies.drafting.gumbel import fill_words, gumbel, keyed_argmax
from tts_orch.seeds import noise_words, trajectory_seed

LEVEL = 1e-4
SEEDS = st.integers(0, 2**64 - 1)
POSITIONS = st.integers(0, 2**31 - 1)


def formula(seed: int, position: int, n_vocabulary: int) -> NDArray[np.float64]:
    ids = np.arange(n_vocabulary)
    high, low = (noise_words(seed, position, ids, plane).astype(np.float64) for plane in (0, 1))
    return -np.log(-np.log1p(-(high + (low + 0.5) * 2.0**-32) * 2.0**-32))


@settings(deadline=None)
@given(seed=SEEDS, position=POSITIONS, first=st.integers(0, 2**20), n=st.integers(1, 40))
def test_row_filler_gives_the_contract_words(seed: int, position: int, first: int, n: int) -> None:
    words = np.zeros(4 * n, np.uint32)
    fill_words(np.uint64(seed), position, 4 * first, words)
    np.testing.assert_array_equal(words, noise_words(seed, position, 4 * first + np.arange(4 * n)))


@settings(deadline=None)
@given(seed=SEEDS, position=POSITIONS)
def test_gumbel_follows_the_formula(seed: int, position: int) -> None:
    np.testing.assert_allclose(gumbel(seed, position, [7, 0, 30, 30]), formula(seed, position, 31)[[7, 0, 30, 30]])


@settings(deadline=None)
@given(
    n_vocabulary=st.sampled_from([1, 3, 255, 256, 257, 1000]),
    scale=st.sampled_from([0.0, 0.3, 4.0, 60.0, 1e6]),
    share=st.sampled_from([0.0, 0.5, 0.99]),
    dtype=st.sampled_from([np.float32, np.float64]),
    randomness=st.integers(0, 2**32),
)
def test_keyed_argmax_is_the_brute_force_argmax(
    n_vocabulary: int, scale: float, share: float, dtype: type, randomness: int
) -> None:
    random = np.random.default_rng(randomness)
    logits = (random.standard_normal((7, n_vocabulary)) * scale + random.normal() * 50).astype(dtype)
    logits[random.random(logits.shape) < share] = -np.inf
    seeds = random.integers(0, 2**64, 3, dtype=np.uint64)[random.integers(0, 3, 7)]
    positions = random.integers(0, 2, 7)
    noise = np.array([formula(int(s), int(p), n_vocabulary) for s, p in zip(seeds, positions, strict=True)])
    expected = np.where((logits > -np.inf).any(axis=1), (logits.astype(np.float64) + noise).argmax(axis=1), -1)
    np.testing.assert_array_equal(keyed_argmax(logits, seeds, positions), expected)


def test_an_infinitely_unlikely_id_still_wins_when_its_noise_says_so() -> None:
    seed, position, n_vocabulary = 11, 3, 50_000
    luckiest = int(formula(seed, position, n_vocabulary).argmax())
    logits = np.full((1, n_vocabulary), -np.inf)
    logits[0, [0, luckiest]] = [0.0, gumbel(seed, position, [0])[0] - gumbel(seed, position, [luckiest])[0] + 1e-9]
    assert keyed_argmax(logits, np.array([seed], np.uint64), np.array([position]))[0] == luckiest
    logits[0, luckiest] -= 2e-9
    assert keyed_argmax(logits, np.array([seed], np.uint64), np.array([position]))[0] == 0


def test_no_rows_and_no_support() -> None:
    assert keyed_argmax(np.zeros((0, 5)), np.zeros(0, np.uint64), np.zeros(0, np.int64)).shape == (0,)
    nothing = np.full((2, 5), -np.inf)
    nothing[1] = np.nan
    assert keyed_argmax(nothing, np.zeros(2, np.uint64), np.zeros(2, np.int64)).tolist() == [-1, -1]


@pytest.mark.parametrize("keyed_by", ["seed", "position"])
def test_draws_follow_the_law(keyed_by: str) -> None:
    n = 20_000
    p = np.array([0.5, 0.2, 0.12, 0.1, 0.05, 0.02, 0.01])
    logits = np.broadcast_to(np.log(p).astype(np.float32), (n, len(p))).copy() + 3
    numbers = np.arange(n)
    seeds = np.array([trajectory_seed(0, "law", (i if keyed_by == "seed" else 0,)) for i in range(n)], np.uint64)
    positions = numbers if keyed_by == "position" else np.full(n, 17)
    counts = np.bincount(keyed_argmax(logits, seeds, positions), minlength=len(p))
    assert stats.chisquare(counts, p * n).pvalue > LEVEL


@pytest.mark.parametrize("plane", [0, 1])
@pytest.mark.parametrize("varied", ["seed", "position", "id"])
def test_words_are_uniform_and_neighbours_independent(varied: str, plane: int) -> None:
    n, ids = 4096, np.arange(4)
    words = {
        "seed": lambda i: noise_words(i, 5, ids, plane),
        "position": lambda i: noise_words(5, i, ids, plane),
        "id": lambda i: noise_words(5, 5, 4 * i + ids, plane),
    }[varied]
    table = np.array([words(i) for i in range(n)]) / 2.0**32
    for column in table.T:
        assert stats.chisquare(np.histogram(column, 64, (0, 1))[0]).pvalue > LEVEL / 4
    normal = stats.norm.ppf(table + 2.0**-33)
    pairs = [normal[:, i] * normal[:, j] for i in ids for j in range(i)] + list((normal[1:] * normal[:-1]).T)
    largest = max(abs(products.mean()) * len(products) ** 0.5 for products in pairs)
    assert 2 * stats.norm.sf(largest) * len(pairs) > LEVEL


def test_candidates_come_in_order_of_their_keys() -> None:
    log_q = np.log(np.array([0.4, 0.4, 0.2, 0.0]), where=[True, True, True, False], out=np.full(4, -np.inf))
    assert gumbel_top_k(log_q, np.array([0.0, 1.0, 3.0, 99.0]), 2).tolist() == [2, 1]
    assert gumbel_top_k(log_q, np.array([0.0, 0.0, 0.0, 99.0]), 9).tolist() == [0, 1, 2]


def test_candidates_are_drawn_without_replacement_from_their_law() -> None:
    n, q = 20_000, np.array([0.6, 0.3, 0.1])
    counts = np.zeros((3, 3))
    for seed in range(n):
        first, second = gumbel_top_k(np.log(q), gumbel(seed, 0, [5, 6, 7]), 2)
        counts[first, second] += 1
    pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
    expected = [q[i] * q[j] / (1 - q[i]) for i, j in pairs]
    assert stats.chisquare([counts[pair] for pair in pairs], np.array(expected) * n).pvalue > LEVEL


def test_a_drafter_gains_by_the_verifiers_own_seed() -> None:
    n, n_vocabulary = 400, 50
    random = np.random.default_rng(0)
    p = random.normal(size=(n, n_vocabulary)) * 1.5
    q = p + random.normal(size=p.shape) * 0.3
    seeds, positions = np.arange(n, dtype=np.uint64), np.zeros(n, np.int64)
    drawn = keyed_argmax(p, seeds, positions)
    hits = {
        offset: np.mean(
            [gumbel_top_k(q[i], gumbel(i + offset, 0, np.arange(n_vocabulary)), 1)[0] == drawn[i] for i in range(n)]
        )
        for offset in (0, 10**6)
    }
    assert hits[0] > 0.7 > 0.3 > hits[10**6]


def test_equal_scores_go_to_the_lowest_id() -> None:
    """Weights so large that the noise is lost in rounding; the winners lie in one block of the scan and beyond it."""
    logits = np.zeros((20, 600))
    logits[:, [5, 17, 400]] = 1e20
    assert keyed_argmax(logits, np.arange(20, dtype=np.uint64), np.arange(20)).tolist() == [5] * 20
