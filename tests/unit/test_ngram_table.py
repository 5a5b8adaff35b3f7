"""Contents of n-gram tables after known commits, against a slow model of dictionaries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.store.deltas import contents
from tts_orch.policies.drafting.context_delta import KEPT, coalesce
from tts_orch.policies.drafting.ngram_kernels import context_key
from tts_orch.policies.drafting.ngram_table import EXPOSED, NgramTable
from tts_orch.records import FloatArray, IntArray

Context = tuple[int, ...]


class SlowTable:
    """What an `NgramTable` means: for each context a count and sums, cut to the largest 32 after every observation."""

    def __init__(self) -> None:
        self.count: Counter[Context] = Counter()
        self.sums: dict[Context, dict[int, int]] = {}

    def observe(self, tokens: IntArray, first: int, law_ids: IntArray, law_probs: FloatArray) -> None:
        for row in range(len(law_ids)):
            shares = [math.floor(float(p) * 65535 + 0.5) for p in law_probs[row]]
            for order in range(1, min(4, first + row + 1) + 1):
                context = tuple(tokens[first + row + 1 - order : first + row + 1].tolist())
                self.count[context] += 1
                sums = Counter(self.sums.get(context, {}))
                sums.update({int(i): share for i, share in zip(law_ids[row], shares, strict=True) if share})
                self.sums[context] = dict(ranked(sums)[:KEPT])

    def lookup(self, context: Context) -> tuple[int, list[int], list[float]] | None:
        for order in (4, 3, 2, 1):
            known = context[-order:]
            if len(known) == order and known in self.count:
                exposed = ranked(self.sums[known])[:EXPOSED]
                return order, [i for i, _ in exposed], [s / (self.count[known] * 65535) for _, s in exposed]
        return None


def ranked(sums: dict[int, int]) -> list[tuple[int, int]]:
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))


def key_of(context: Context) -> int:
    """The key by plain integers: the contract between workers."""
    key = 0
    for order, token in enumerate(reversed(context), start=1):
        key = ((key ^ (token << 3 | order)) + 0x9E3779B97F4A7C15) % 2**64
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
        key ^= key >> 31
    return key


def random_laws(generator: np.random.Generator, n: int, vocabulary_size: int, k: int) -> tuple[IntArray, FloatArray]:
    """Laws cut to their `k` largest, from flat to nearly one-hot."""
    laws = generator.dirichlet(np.full(vocabulary_size, generator.choice([0.02, 0.2, 2.0])), n)
    ids = np.argsort(-laws, axis=1)[:, :k]
    return ids.astype(np.int32), np.take_along_axis(laws, ids, axis=1).astype(np.float32)


def assert_equal(table: NgramTable, model: SlowTable) -> None:
    for context in model.count:
        found, expected = table.lookup(np.array(context, np.int32)), model.lookup(context)
        assert found is not None
        assert expected is not None
        assert found[0] == expected[0] == len(context)
        assert found[1].tolist() == expected[1]
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-12)
    assert table.size == len(model.count)


@given(seed=st.integers(0, 2**32), k=st.integers(1, KEPT), runs=st.lists(st.integers(0, 7), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_table_equals_model(seed: int, k: int, runs: list[int]) -> None:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 4, sum(runs) + 3).astype(np.int32)
    table, model, first = NgramTable(), SlowTable(), int(generator.integers(0, 3))
    for n in runs:
        law_ids, law_probs = random_laws(generator, n, 60, k)
        table.observe(tokens, first, law_ids, law_probs)
        model.observe(tokens, first, law_ids, law_probs)
        first += n
    assert_equal(table, model)


def test_growth_keeps_every_entry() -> None:
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, 50_000, 1500).astype(np.int32)
    law_ids, law_probs = random_laws(generator, 1500, 20, 3)
    table, model = NgramTable(), SlowTable()
    table.observe(tokens, 0, law_ids, law_probs)
    model.observe(tokens, 0, law_ids, law_probs)
    assert table.size > 4096  # grown more than twice
    assert_equal(table, model)


def test_longest_known_context_wins() -> None:
    table = NgramTable()
    tokens = np.array([1, 2, 3, 4, 5], np.int32)
    laws = np.arange(10, 15, dtype=np.int32)[:, None], np.ones((5, 1), np.float32)
    table.observe(tokens, 0, *laws)
    for context, order, drawn in (([1, 2, 3, 4, 5], 4, 14), ([9, 3, 4], 2, 13), ([4, 9, 1], 1, 10), ([1, 2, 3], 3, 12)):
        found = table.lookup(np.array(context, np.int32))
        assert found is not None
        assert (found[0], found[1].tolist()) == (order, [drawn])
    assert table.lookup(np.array([9], np.int32)) is None


def test_context_keys_are_a_contract() -> None:
    for context in ((0,), (7, 0), (1, 2, 3, 4), (2**31 - 1, 151_935)):
        key = np.uint64(0)
        for order, token in enumerate(reversed(context), start=1):
            key = np.uint64(context_key(key, token, order))
        assert int(key) == key_of(context)


def test_full_table_forgets_what_was_observed_least() -> None:
    table = NgramTable(max_entries=16)
    often = np.zeros(2, np.int32)
    law = np.ones((1, 1), np.int32), np.ones((1, 1), np.float32)
    for _ in range(3):
        table.observe(often, 0, *law)
    for token in range(1, 40):
        table.observe(np.array([token], np.int32), 0, *law)
    assert table.size <= 16
    found = table.lookup(often[:1])
    assert found is not None
    assert found[2].tolist() == [1.0]
    assert table.lookup(np.array([1], np.int32)) is None
    assert table.lookup(np.array([39], np.int32)) is not None


@given(seed=st.integers(0, 2**32), n_parts=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_deltas_carry_everything_in_any_order(seed: int, n_parts: int) -> None:
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 3, 40).astype(np.int32)
    law_ids, law_probs = random_laws(generator, 40, 25, 10)
    source, model, deltas = NgramTable(records_deltas=True), SlowTable(), []
    for rows in np.array_split(np.arange(40), n_parts):
        source.observe(tokens, int(rows[0]), law_ids[rows], law_probs[rows])
        model.observe(tokens, int(rows[0]), law_ids[rows], law_probs[rows])
        deltas.append(source.drain())
    expected = {key_of(c): (len(c), model.count[c], model.sums[c]) for c in model.count}
    assert contents(coalesce(deltas)) == expected
    replica = NgramTable()
    for i in generator.permutation(n_parts):
        replica.merge(deltas[i])
    assert_equal(replica, model)
    assert source.drain().n_contexts == 0


def test_what_is_not_recorded() -> None:
    law = np.ones((1, 1), np.int32), np.ones((1, 1), np.float32)
    table = NgramTable(records_deltas=True)
    table.observe(np.array([1], np.int32), 0, *law, is_shared=False)
    table.merge(table.drain())
    assert table.size == 1
    assert table.n_undrained == 0
    table.observe(np.array([1], np.int32), 0, *law)
    assert table.n_undrained == 1
    other = NgramTable(records_deltas=True)
    other.merge(table.drain())
    assert other.n_undrained == 0


def test_cut_keeps_the_largest_sums() -> None:
    generator = np.random.default_rng(2)
    law_ids, law_probs = random_laws(generator, 30, 40, 12)
    table = NgramTable(records_deltas=True)
    table.observe(generator.integers(0, 2, 30).astype(np.int32), 0, law_ids, law_probs)
    whole = table.drain()
    expected = {key: (order, n, dict(sorted(ranked(sums)[:5]))) for key, (order, n, sums) in contents(whole).items()}
    assert contents(whole.cut(5)) == expected
    assert contents(whole.cut(100)) == contents(whole)


@pytest.mark.parametrize(
    ("law_ids", "law_probs", "first", "message"),
    [
        (np.full((1, 2), 100), np.full((1, 2), 0.5), 0, "ids outside"),
        (np.full((1, 2), -1), np.full((1, 2), 0.5), 0, "ids outside"),
        (np.zeros((1, 1)), np.full((1, 1), np.nan), 0, "probabilities outside"),
        (np.zeros((1, 1)), np.full((1, 1), 1.5), 0, "probabilities outside"),
        (np.zeros((1, KEPT + 1)), np.zeros((1, KEPT + 1)), 0, "k <= 32"),
        (np.zeros((2, 1)), np.ones((2, 1)), 2, "do not fit"),
        (np.zeros((1, 1)), np.ones((1, 1)), -1, "do not fit"),
    ],
)
def test_impossible_laws_are_refused(
    law_ids: NDArray[np.float64], law_probs: NDArray[np.float64], first: int, message: str
) -> None:
    table = NgramTable(vocabulary_size=100)
    with pytest.raises(ValueError, match=message):
        table.observe(np.zeros(3, np.int32), first, law_ids.astype(np.int32), law_probs.astype(np.float32))
    assert table.size == 0


def test_delta_of_another_vocabulary_is_refused() -> None:
    source = NgramTable(records_deltas=True)
    source.observe(np.zeros(1, np.int32), 0, np.full((1, 1), 100, np.int32), np.ones((1, 1), np.float32))
    with pytest.raises(ValueError, match="another target"):
        NgramTable(vocabulary_size=100).merge(source.drain())
