"""Contents of n-gram tables after known observations, against a slow model of dictionaries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.store.deltas import contents
from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE, ContextDelta, coalesce
from tts_orch.policies.drafting.ngram_arena import TOUCHED, UNIT, n_units
from tts_orch.policies.drafting.ngram_entries import LEAST_SHARE, MOST_COUNT
from tts_orch.policies.drafting.ngram_kernels import (
    FREE_UNITS,
    IDS,
    KEYS,
    STATE,
    SUMS,
    context_key,
    entry_span,
    find_entry,
    touch,
)
from tts_orch.policies.drafting.ngram_table import EXPOSED, NgramTable
from tts_orch.records import FloatArray, IntArray

Context = tuple[int, ...]
Laws = tuple[IntArray, FloatArray]


class SlowTable:
    """What a scope means: for each context a count and sums, cut to the largest 32 after every observation."""

    def __init__(self) -> None:
        self.count: Counter[Context] = Counter()
        self.sums: dict[Context, dict[int, int]] = {}
        self.uncut: dict[Context, Counter[int]] = {}

    def observe(self, text: IntArray, first: int, laws: Laws) -> None:
        for end, ids, probs in zip(range(first + 1, len(text) + 1), *laws, strict=False):
            shares = {int(i): math.floor(float(p) * 65535 + 0.5) for i, p in zip(ids, probs, strict=True)}
            for order in range(1, min(ORDERS, end) + 1):
                self._add(tuple(text[end - order : end].tolist()), shares)

    def _add(self, context: Context, shares: dict[int, int]) -> None:
        known = self.sums.get(context, {})
        sums = Counter({i: s for i, s in shares.items() if i in known or s >= LEAST_SHARE})
        if not known and not sums:
            return
        sums.update(known)
        self.count[context] += 1
        self.sums[context] = dict(ranked(sums)[:KEPT])

    def lookup(self, context: Context) -> tuple[int, list[int], list[float]] | None:
        for order in range(ORDERS, 0, -1):
            known = context[-order:]
            if len(known) == order and known in self.count:
                exposed = ranked(self.sums[known])[:EXPOSED]
                return order, [i for i, _ in exposed], [s / (self.count[known] * 65535) for _, s in exposed]
        return None


def ranked(sums: dict[int, int]) -> list[tuple[int, int]]:
    return sorted(sums.items(), key=lambda item: (-item[1], item[0]))


def history(text: IntArray, first: int, n: int) -> IntArray:
    """The last tokens up to each of `n` positions, most recent first."""
    rows = np.full((n, ORDERS), -1, np.int32)
    for row in range(n):
        last = text[max(0, first + row + 1 - ORDERS) : first + row + 1][::-1]
        rows[row, : len(last)] = last
    return rows


def observe(table: NgramTable, scope: str, text: IntArray, first: int, laws: Laws) -> ContextDelta:
    rows = history(text, first, len(laws[0]))
    contexts = table.observe(np.full(len(rows), table.open(scope)), rows, *laws, returns_contexts=True)
    assert contexts is not None
    return contexts


def random_laws(generator: np.random.Generator, n: int, vocabulary_size: int, k: int) -> Laws:
    """Laws cut to their `k` largest, from flat to nearly one-hot."""
    laws = generator.dirichlet(np.full(vocabulary_size, generator.choice([0.02, 0.2, 2.0])), n)
    ids = np.argsort(-laws, axis=1)[:, :k]
    return ids.astype(np.int32), np.take_along_axis(laws, ids, axis=1).astype(np.float32)


def assert_equal(table: NgramTable, scope: str, model: SlowTable) -> None:
    for context in model.count:
        found, expected = table.lookup(scope, np.array(context, np.int32)), model.lookup(context)
        assert found is not None
        assert expected is not None
        assert found[0] == expected[0] == len(context)
        assert found[1].tolist() == expected[1]
        np.testing.assert_allclose(found[2], expected[2], rtol=1e-12)


@given(seed=st.integers(0, 2**32), k=st.integers(1, KEPT), runs=st.lists(st.integers(0, 7), min_size=1, max_size=30))
@settings(max_examples=40, deadline=None)
def test_table_equals_model(seed: int, k: int, runs: list[int]) -> None:
    generator = np.random.default_rng(seed)
    table, first = NgramTable(max_entries=2000), int(generator.integers(0, 3))
    models = {"a": SlowTable(), "b": SlowTable()}
    texts = {scope: generator.integers(0, 4, sum(runs) + 3).astype(np.int32) for scope in models}
    for n in runs:
        for scope, model in models.items():
            laws = random_laws(generator, n, 60, k)
            observe(table, scope, texts[scope], first, laws)
            model.observe(texts[scope], first, laws)
        first += n
    for scope, model in models.items():
        assert_equal(table, scope, model)
    assert table.size == sum(len(model.count) for model in models.values())
    assert table.n_evicted == 0


def key_of(context: Context) -> int:
    """The key by plain integers: the contract between workers."""
    key = 0
    for order, token in enumerate(reversed(context), start=1):
        key = ((key ^ (token << 3 | order)) + 0x9E3779B97F4A7C15) % 2**64
        key = (key ^ key >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        key = (key ^ key >> 27) * 0x94D049BB133111EB % 2**64
        key ^= key >> 31
    return key


def certain(*tokens: int) -> Laws:
    """A law a token, sure of it."""
    return np.array(tokens, np.int32)[:, None], np.ones((len(tokens), 1), np.float32)


def observe_one(table: NgramTable, scope: str, token: int, drawn: int = 0) -> None:
    """Count a law after a text of one token."""
    observe(table, scope, np.array([token], np.int32), 0, certain(drawn))


def knows(table: NgramTable, scope: str, token: int) -> bool:
    return table.lookup(scope, np.array([token], np.int32)) is not None


def assert_consistent(table: NgramTable) -> None:
    """Every entry is found, its ids are in order, and its block is its own; what no block has is free."""
    columns = table.columns
    slots = np.flatnonzero(columns[KEYS])
    blocks = np.zeros(len(columns[FREE_UNITS]) * 64, np.int64)
    for slot in slots.tolist():
        assert find_entry(columns, columns[KEYS][slot]) == slot
        count, start, n_ids = entry_span(columns, slot)
        assert 1 <= n_ids <= KEPT
        assert 1 <= count <= MOST_COUNT
        ids, sums = columns[IDS][start : start + n_ids].tolist(), columns[SUMS][start : start + n_ids].tolist()
        assert list(zip(ids, sums, strict=True)) == ranked(dict(zip(ids, sums, strict=True)))
        blocks[start // UNIT : start // UNIT + n_units(n_ids)] += 1
    n_touched = int(columns[STATE][TOUCHED]) * 64
    free = np.unpackbits(columns[FREE_UNITS].view(np.uint8), bitorder="little")[:n_touched]
    np.testing.assert_array_equal(blocks[:n_touched] + free, 1)
    assert not blocks[n_touched:].any()


def test_longest_known_context_wins() -> None:
    table = NgramTable()
    observe(table, "a", np.array([1, 2, 3, 4, 5], np.int32), 0, certain(10, 11, 12, 13, 14))
    for context, order, drawn in (([1, 2, 3, 4, 5], 4, 14), ([9, 3, 4], 2, 13), ([4, 9, 1], 1, 10), ([1, 2, 3], 3, 12)):
        found = table.lookup("a", np.array(context, np.int32))
        assert found is not None
        assert (found[0], found[1].tolist()) == (order, [drawn])
    assert not knows(table, "a", 9)
    assert not knows(table, "b", 1)


def test_context_keys_are_a_contract() -> None:
    for context in ((0,), (7, 0), (1, 2, 3, 4), (2**31 - 1, 151_935)):
        key = np.uint64(0)
        for order, token in enumerate(reversed(context), start=1):
            key = np.uint64(context_key(key, token, order))
        assert int(key) == key_of(context)


def test_reopened_scope_is_empty() -> None:
    table = NgramTable()
    salt = table.open("a")
    assert table.open("a") == salt
    observe_one(table, "a", 1)
    observe_one(table, "b", 1)
    table.close("a")
    assert table.size == 1
    assert table.scopes == {"b"}
    with pytest.raises(ValueError, match="not open"):
        table.observe(np.array([table.open("b"), salt]), np.zeros((2, ORDERS), np.int32), *certain(0, 0))
    assert not knows(table, "b", 0)  # nothing of a refused batch is counted
    assert table.open("a") != salt
    assert not knows(table, "a", 1)
    assert knows(table, "b", 1)


def test_closed_scopes_make_room_first() -> None:
    table = NgramTable(max_entries=64)
    for token in range(60):
        observe_one(table, "open", token)
    for token in range(4):
        observe_one(table, "closed", token)
    table.close("closed")
    for token in range(100, 104):
        observe_one(table, "open", token)
    assert table.n_evicted == 0
    assert table.size == 64
    assert all(knows(table, "open", token) for token in (*range(60), *range(100, 104)))


def test_memory_of_closed_scopes_is_used_again() -> None:
    generator = np.random.default_rng(0)
    table = NgramTable(max_entries=20_000)
    sizes = []
    for problem in range(60):
        text = generator.integers(0, 50_000, 400).astype(np.int32)
        observe(table, str(problem), text, 0, random_laws(generator, 400, 40, 20))
        table.close(str(problem))
        sizes.append(table.size_bytes)
    assert table.size == table.n_evicted == 0
    assert sizes[-1] < 1.05 * sizes[10]  # 96 000 entries in all


def test_full_table_keeps_what_is_used() -> None:
    table = NgramTable(max_entries=256)
    for token in range(100):
        observe_one(table, "a", token)
    for token in range(100, 3000):
        observe_one(table, "a", token)
        if token % 20 == 0:
            for used in range(0, 100, 2):
                touch(table.columns, find_entry(table.columns, np.uint64(key_of((used,))) ^ table.open("a")))
    assert table.size == 256
    assert table.n_evicted == 3000 - 256
    assert all(knows(table, "a", token) for token in range(0, 100, 2))
    assert not any(knows(table, "a", token) for token in range(1, 100, 2))
    assert_consistent(table)


@given(seed=st.integers(0, 2**32), max_entries=st.sampled_from([16, 40, 150]))
@settings(max_examples=25, deadline=None)
def test_nothing_leaks_over_random_operations(seed: int, max_entries: int) -> None:
    generator = np.random.default_rng(seed)
    table, deltas = NgramTable(max_entries=max_entries), [ContextDelta.empty()]
    for _ in range(60):
        scope = "abc"[generator.integers(3)]
        match generator.integers(8):
            case 0:
                table.close(scope)
            case 1:
                table.open(scope)
                table.merge(scope, coalesce(deltas[-5:]))
            case _:
                text = generator.integers(0, 6, 12).astype(np.int32)
                n_ids = int(generator.integers(1, 60))
                deltas.append(observe(table, scope, text, 2, random_laws(generator, 10, n_ids, min(n_ids, KEPT))))
        assert_consistent(table)
        assert table.size <= np.count_nonzero(table.columns[KEYS]) <= max_entries
        if not table.scopes:
            assert table.size == 0


@given(seed=st.integers(0, 2**32), n_parts=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_deltas_carry_everything_in_any_order(seed: int, n_parts: int) -> None:
    generator = np.random.default_rng(seed)
    text = generator.integers(0, 3, 40).astype(np.int32)
    laws = random_laws(generator, 40, 25, 10)
    laws[1][laws[1] < LEAST_SHARE / PROBABILITY_ONE] = 0
    source, model, deltas = NgramTable(max_entries=500), SlowTable(), []
    for rows in np.array_split(np.arange(40), n_parts):
        part = laws[0][rows], laws[1][rows]
        deltas.append(observe(source, "a", text, int(rows[0]), part))
        model.observe(text, int(rows[0]), part)
    expected = {key_of(c): (len(c), model.count[c], model.sums[c]) for c in model.count}
    assert contents(coalesce(deltas)) == expected
    replica = NgramTable(max_entries=500)
    replica.open("b")
    for i in generator.permutation(n_parts):
        replica.merge("b", deltas[i])
    assert_equal(replica, "b", model)


def test_contexts_come_row_by_row() -> None:
    table, rows = NgramTable(), np.array([[5, 6, -1, -1], [7, -1, -1, -1]], np.int32)
    salts = np.array([table.open("a"), table.open("b")])
    contexts = table.observe(salts, rows, *certain(1, 2), returns_contexts=True)
    assert contexts is not None
    assert contexts.key.tolist() == [key_of((5,)), key_of((6, 5)), key_of((7,))]
    assert contexts.order.tolist() == [1, 2, 1]
    assert contexts.ids.tolist() == [1, 1, 2]
    assert table.observe(salts, rows, *certain(1, 2)) is None
    assert (knows(table, "a", 5), knows(table, "a", 7), knows(table, "b", 7)) == (True, False, True)


def test_deltas_keep_what_tables_do_not() -> None:
    table = NgramTable()
    law = np.array([[1, 2]], np.int32), np.array([[0.9, (LEAST_SHARE - 1) / PROBABILITY_ONE]], np.float32)
    contexts = observe(table, "a", np.zeros(1, np.int32), 0, law)
    assert contexts.ids.tolist() == [1, 2]
    found = table.lookup("a", np.zeros(1, np.int32))
    assert found is not None
    assert found[1].tolist() == [1]
    observe(table, "a", np.array([3], np.int32), 0, (law[0][:, 1:], law[1][:, 1:]))
    assert not knows(table, "a", 3)


def test_read_only_columns_are_merged() -> None:
    table, other = NgramTable(), NgramTable()
    contexts = observe(table, "a", np.zeros(1, np.int32), 0, certain(4))
    for name in ContextDelta.__slots__:
        getattr(contexts, name).flags.writeable = False
    other.open("a")
    other.merge("a", contexts)
    assert knows(other, "a", 0)


@pytest.mark.parametrize("count", [500, 1000, MOST_COUNT, 10**9])
def test_counts_are_halved_before_sums_overflow(count: int) -> None:
    table, salt_free = NgramTable(), np.array([key_of((0,))], np.uint64)
    shares = np.array([40_000, 20_000], np.int64)
    delta = ContextDelta(
        salt_free,
        np.ones(1, np.uint8),
        np.array([count], np.int64),
        np.array([0, 2]),
        np.array([1, 2], np.int32),
        shares * count,
    )
    table.open("a")
    for _ in range(3 * MOST_COUNT // count + 3):
        table.merge("a", delta)
    found = table.lookup("a", np.zeros(1, np.int32))
    assert found is not None
    assert found[1].tolist() == [1, 2]
    np.testing.assert_allclose(found[2], shares / PROBABILITY_ONE, rtol=1e-3)
    assert_consistent(table)


def test_cut_keeps_the_largest_sums() -> None:
    generator = np.random.default_rng(2)
    text, laws = generator.integers(0, 2, 30).astype(np.int32), random_laws(generator, 30, 40, 12)
    whole = coalesce([observe(NgramTable(), "a", text, 0, laws)])
    expected = {key: (order, n, dict(sorted(ranked(sums)[:5]))) for key, (order, n, sums) in contents(whole).items()}
    assert contents(whole.cut(5)) == expected
    assert contents(whole.cut(100)) == contents(whole)


@pytest.mark.parametrize(
    ("law_ids", "law_probs", "n_rows", "message"),
    [
        (np.full((1, 2), 100), np.full((1, 2), 0.5), 1, "ids outside"),
        (np.full((1, 2), -1), np.full((1, 2), 0.5), 1, "ids outside"),
        (np.zeros((1, 1)), np.full((1, 1), np.nan), 1, "probabilities outside"),
        (np.zeros((1, 1)), np.full((1, 1), 1.5), 1, "probabilities outside"),
        (np.zeros((1, KEPT + 1)), np.zeros((1, KEPT + 1)), 1, "k <= 32"),
        (np.zeros((2, 1)), np.ones((2, 1)), 1, "do not fit"),
    ],
)
def test_impossible_laws_are_refused(
    law_ids: NDArray[np.float64], law_probs: NDArray[np.float64], n_rows: int, message: str
) -> None:
    table = NgramTable(vocabulary_size=100)
    salts, rows = np.full(n_rows, table.open("a")), np.zeros((n_rows, ORDERS), np.int32)
    with pytest.raises(ValueError, match=message):
        table.observe(salts, rows, law_ids.astype(np.int32), law_probs.astype(np.float32))
    assert table.size == 0


def test_impossible_deltas_are_refused() -> None:
    delta = observe(NgramTable(), "a", np.zeros(1, np.int32), 0, certain(100))
    small, large = NgramTable(vocabulary_size=100), NgramTable()
    small.open("a")
    with pytest.raises(ValueError, match="another target"):
        small.merge("a", delta)
    with pytest.raises(ValueError, match="not open"):
        large.merge("a", delta)
    large.open("a")
    with pytest.raises(ValueError, match="impossible sums"):
        large.merge("a", ContextDelta(delta.key, delta.order, delta.count, delta.start, delta.ids, 2 * delta.sums))
    assert small.size == large.size == 0


def test_too_small_table_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        NgramTable(max_entries=15)
