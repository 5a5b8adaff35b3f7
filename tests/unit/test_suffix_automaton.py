"""The suffix automaton against scans of its texts."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.drafting.suffix_automaton import Match, SuffixAutomaton

texts_of_few_letters = st.lists(st.lists(st.integers(0, 2), max_size=14), min_size=1, max_size=4)


def build(texts: list[list[int]]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for tokens in texts:
        text = automaton.add_text()
        for token in tokens:
            automaton.append(text, token)
    return automaton


def interleaved(texts: list[list[int]], seed: int) -> list[tuple[int, int]]:
    """The tokens of all texts with their text, in a random order that keeps every text's own."""
    order = np.random.default_rng(seed).permutation([i for i, tokens in enumerate(texts) for _ in tokens])
    rest = [iter(tokens) for tokens in texts]
    return [(int(i), next(rest[i])) for i in order]


@given(texts=texts_of_few_letters, seed=st.integers(0, 999))
def test_states_stand_for_the_distinct_substrings(texts: list[list[int]], seed: int) -> None:
    automaton = SuffixAutomaton()
    for _ in texts:
        automaton.add_text()
    for text, token in interleaved(texts, seed):
        automaton.append(text, token)
    substrings = {tuple(t[i:j]) for t in texts for i in range(len(t)) for j in range(i + 1, len(t) + 1)}
    lengths, links = automaton.length, automaton.link
    assert sum(lengths[i] - lengths[links[i]] for i in range(1, len(lengths))) == len(substrings)
    assert len(lengths) <= 2 * sum(map(len, texts)) + 1


def first_copy(
    written: list[tuple[int, int]], texts: list[list[int]], suffix: list[int], n_tokens: int
) -> list[int] | None:
    """What followed a suffix where it was first written, None if less than `n_tokens` did."""
    so_far: list[list[int]] = [[] for _ in texts]
    for text, token in written:
        so_far[text].append(token)
        if so_far[text][-len(suffix) :] == suffix:
            copied = texts[text][len(so_far[text]) :][:n_tokens]
            return copied if len(copied) == n_tokens else None
    raise AssertionError("the match is no substring")


@given(texts=texts_of_few_letters, seed=st.integers(0, 999), n_tokens=st.integers(0, 4))
def test_matches_and_continuations_equal_a_scan(texts: list[list[int]], seed: int, n_tokens: int) -> None:
    automaton, written = SuffixAutomaton(), list[tuple[int, int]]()
    matches = [Match() for _ in texts]
    so_far: list[list[int]] = [[] for _ in texts]
    for _ in texts:
        automaton.add_text()
    for text, token in interleaved(texts, seed):
        match, now = matches[text], [*so_far[text], token]
        known = {tuple(t[i:j]) for t in so_far for i in range(len(t)) for j in range(i + 1, len(t) + 1)}
        longest = max(n for n in range(match.length + 2) if n == 0 or tuple(now[-n:]) in known)
        automaton.advance(match, token)
        assert match.length == longest
        automaton.append(text, token)
        so_far[text] = now
        written.append((text, token))
        for other, match in enumerate(matches):
            copies = [
                (first_copy(written, so_far, so_far[other][-n:], n_tokens), n) for n in range(match.length, 0, -1)
            ]
            expected = next(((copy, n) for copy, n in copies if copy is not None), ([], 0))
            assert automaton.continuation(match, n_tokens) == expected


@given(tokens=st.lists(st.integers(0, 2), min_size=1, max_size=30))
def test_a_text_matches_its_longest_suffix_that_occurred_before(tokens: list[int]) -> None:
    automaton, match = SuffixAutomaton(), Match()
    text = automaton.add_text()
    for token in tokens:
        automaton.advance(match, token)
        automaton.append(text, token)
    n = len(tokens)
    occurred = [m for m in range(1, n) for end in range(m, n) if tokens[end - m : end] == tokens[n - m :]]
    assert match.length == max(occurred, default=0)


@given(texts=texts_of_few_letters, read=st.lists(st.integers(0, 3), max_size=14))
def test_a_foreign_text_matches_its_longest_known_suffix(texts: list[list[int]], read: list[int]) -> None:
    automaton, match = build(texts), Match()
    for end, token in enumerate(read, start=1):
        automaton.advance(match, token)
        known = [n for n in range(1, end + 1) for t in texts if _contains(t, read[end - n : end])]
        assert match.length == max(known, default=0)


def _contains(text: list[int], part: list[int]) -> bool:
    return any(text[i : i + len(part)] == part for i in range(len(text) - len(part) + 1))


def test_earlier_ends_are_taken_for_longer_copies() -> None:
    automaton, match = build([[1, 2, 3, 4, 5, 9, 2, 3]]), Match()
    for token in (9, 2, 3):
        automaton.advance(match, token)
    assert automaton.continuation(match, 0) == ([], 3)
    assert automaton.continuation(match, 2) == ([4, 5], 2)
    assert automaton.continuation(match, 6) == ([], 0)
