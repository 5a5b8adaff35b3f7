"""The counted trie against counting in the texts themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.counted_trie import CountedTrie, TrieText
from tts_orch.policies.drafting.trie_kernels import longest_match
from tts_orch.policies.drafting.trie_nodes import COUNT, FIRST_CHILD, NEXT, ROOT, SUFFIX, TOKEN, find_child

N_TOKENS = 3
Run = tuple[int, ...]
APPENDS = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, N_TOKENS - 1), max_size=12)), max_size=12)


def runs(texts: Sequence[TrieText], max_depth: int) -> Counter[Run]:
    """The definition: every run of up to `max_depth` tokens, wherever it stands."""
    counts: Counter[Run] = Counter()
    for text in texts:
        tokens = text.buffer.tokens.tolist()
        for start in range(len(tokens)):
            counts.update(tuple(tokens[start:end]) for end in range(start + 1, len(tokens) + 1)[:max_depth])
    return counts


def read(trie: CountedTrie, node: int = ROOT, run: Run = ()) -> dict[Run, int]:
    """What the nodes say, in the order of their lists; checks that lists, index and suffix links agree."""
    nodes = trie.arrays[0]
    found = {token: find_child(trie.arrays, node, token) for token in range(N_TOKENS)}
    children = {token: child for token, child in found.items() if child >= 0}
    if node != ROOT:
        listed, child = {}, int(nodes[node, FIRST_CHILD])
        while child >= 0:
            listed[int(nodes[child, TOKEN])] = child
            child = int(nodes[child, NEXT])
        assert listed == children
        counts = [int(nodes[child, COUNT]) for child in listed.values()]
        assert counts == sorted(counts, reverse=True)
        assert longest_match(trie.arrays, np.array(run[1:], np.int32)) == (nodes[node, SUFFIX], len(run) - 1)
        children = listed
    known = {} if node == ROOT else {run: int(nodes[node, COUNT])}
    for token, child in children.items():
        known |= read(trie, child, (*run, token))
    return known


def grown(trie: CountedTrie, appends: list[tuple[int, list[int]]]) -> list[TrieText]:
    texts = [TrieText() for _ in range(3)]
    for which, tokens in appends:
        trie.append(texts[which], np.array(tokens, np.int32))
    return texts


@settings(deadline=None)
@given(appends=APPENDS, max_depth=st.integers(1, 6))
def test_counts_every_run(appends: list[tuple[int, list[int]]], max_depth: int) -> None:
    trie = CountedTrie(max_depth)
    texts = grown(trie, appends)
    assert read(trie) == runs(texts, max_depth)
    assert trie.n_nodes == 1 + len(read(trie))


@settings(max_examples=100, deadline=None)
@given(appends=APPENDS, max_depth=st.integers(1, 6), spare=st.integers(1, 60))
def test_texts_make_room_whole_and_in_order(appends: list[tuple[int, list[int]]], max_depth: int, spare: int) -> None:
    trie = CountedTrie(max_depth, max_depth + spare)
    texts = grown(trie, appends)
    known = read(trie)
    assert known == runs(texts, max_depth)
    assert trie.n_nodes == 1 + len(known) <= max_depth + spare


def test_the_oldest_text_goes_first() -> None:
    trie = CountedTrie(2, max_nodes=15)
    old, young, new = TrieText(), TrieText(), TrieText()
    trie.append(old, np.arange(3, dtype=np.int32))
    trie.append(young, np.arange(10, 13, dtype=np.int32))
    trie.append(old, np.arange(3, 4, dtype=np.int32))  # 7 and 5 runs: 13 nodes
    trie.append(new, np.arange(20, 22, dtype=np.int32))
    assert [len(text.buffer) for text in (old, young, new)] == [0, 3, 2]
    trie.append(old, np.arange(30, 34, dtype=np.int32))  # counts as a new text
    assert [len(text.buffer) for text in (old, young, new)] == [4, 0, 2]


def test_a_bound_that_no_token_fits_in() -> None:
    with pytest.raises(ValueError, match=r"max_nodes: 8 must be more than max_depth \(8\)"):
        CountedTrie(8, max_nodes=8)


def test_memory_stays_flat() -> None:
    trie, text = CountedTrie(8, max_nodes=2000), TrieText()
    tokens = np.random.default_rng(0).integers(0, 1000, (20, 500), np.int32)
    trie.append(text, tokens[0])
    size = trie.n_bytes
    assert size <= 48 * 2000 + 8
    for more in tokens[1:]:
        trie.append(text, more)
        assert trie.n_bytes == size


def test_repetition_makes_room_too() -> None:
    trie = CountedTrie(4, max_nodes=50)
    texts = [TrieText() for _ in range(20)]
    for text in texts:
        trie.append(text, np.zeros(10, np.int32))
    assert trie.n_nodes == 5
    assert [len(text.buffer) for text in texts] == [0] * 15 + [10] * 5
