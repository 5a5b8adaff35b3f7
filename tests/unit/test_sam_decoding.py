"""SAM decoding: which copy is drafted, when the fallback is asked, and what trajectories share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.policies.drafting.sam_decoding import SamDecoding
from tts_orch.policies.drafting.token_recycling import TokenRecycling
from tts_orch.records import IntArray, SamplingParams

VOCABULARY_SIZE = 1000
ALPHABET = list(range(100, 160))
COPIED = list(range(105, 145))
"""What follows the first five letters."""


def start(name: str, tokens: Sequence[int], scope: str = "scope") -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), scope, 0, SamplingParams())


def sam(*, shares_scope: bool = True, corpus: IntArray | None = None, max_tokens: int = 1 << 20) -> SamDecoding:
    fallback = TokenRecycling(VOCABULARY_SIZE)
    return SamDecoding(fallback, corpus=corpus, shares_scope=shares_scope, max_tokens=max_tokens)


def commit(drafter: SamDecoding, name: str, root: int, tokens: Sequence[int], candidate: int = 7) -> None:
    """Commit tokens, the first of them from a law that knows one candidate."""
    ids, probabilities = np.full((1, 1), candidate, np.int32), np.ones((1, 1), np.float32)
    accepted, committed = np.zeros(0, np.int32), np.array(tokens, np.int32)
    drafter.observe([VerifiedStep(name, DraftTree.root_only(root), accepted, committed, ids, probabilities)])


def grow(drafter: SamDecoding, name: str, n_nodes: int = 80) -> DraftTree:
    return drafter.slots([name]).grow([n_nodes])[0]


def test_copies_forty_tokens_after_five_that_match() -> None:
    drafter = sam()
    drafter.start(start("a", [*ALPHABET, 1, *ALPHABET[:5]]))
    tree = grow(drafter, "a")
    assert tree.token.tolist() == [104, *COPIED]
    assert tree.parent.tolist() == list(range(-1, 40))
    assert set(tree.source[1:].tolist()) == {2}
    rates = drafter.priors[tree.kind[1:]]
    assert len(set(rates.tolist())) > 1
    assert (np.diff(rates) >= 0).all()  # accepted copies make the match longer
    assert tree.kind[0] == 0
    assert tree.kind[1:].min() == len(TokenRecycling(1).priors)
    assert tree.kind.max() == len(drafter.priors) - 1
    assert grow(drafter, "a", 3).token.tolist() == [104, 105, 106, 107]
    assert grow(drafter, "a", 0).n_nodes == 1


def test_shorter_matches_ask_the_fallback() -> None:
    drafter = sam()
    assert drafter.learns_from_rejected
    drafter.start(start("a", [*ALPHABET, 1, *ALPHABET[:3]]))
    commit(drafter, "a", 102, [103], candidate=9)
    commit(drafter, "a", 103, [2, 102])
    tree = grow(drafter, "a")
    assert tree.token.tolist() == [102, 9]
    assert tree.source.tolist() == [0, 1]
    assert not SamDecoding(PromptLookup()).learns_from_rejected


def test_one_pass_mixes_chains_and_fallback_trees_in_order() -> None:
    drafter = sam(shares_scope=False)
    drafter.start(start("short", [3, 4]))
    drafter.observe_prompt("short", 0, np.array([[8]], np.int32), np.ones((1, 1), np.float32))
    drafter.start(start("long", [*ALPHABET, 1, *ALPHABET[:5]]))
    drafter.start(start("last", [4, 3]))
    trees = drafter.slots(["short", "long", "last"]).grow([5, 2, 5])
    assert [tree.token.tolist() for tree in trees] == [[4], [104, 105, 106], [3, 8]]


def test_trajectories_of_a_scope_copy_from_each_other_if_they_share() -> None:
    for shares_scope in (True, False):
        drafter = sam(shares_scope=shares_scope)
        drafter.start(start("a", [1]))
        drafter.start(start("b", [2], "scope"))
        drafter.start(start("c", [2], "other"))
        commit(drafter, "a", 1, ALPHABET)
        drafter.close("a")
        commit(drafter, "b", 2, ALPHABET[:5])
        commit(drafter, "c", 2, ALPHABET[:5])
        assert (grow(drafter, "b").n_nodes > 10) == shares_scope
        assert grow(drafter, "c").n_nodes == 1
        drafter.start(start("d", [2, *ALPHABET[:5]]))
        assert (grow(drafter, "d").n_nodes > 10) == shares_scope
        drafter.close_scope("scope")
        drafter.start(start("e", [2, *ALPHABET[:5]]))
        assert grow(drafter, "e").n_nodes == 1


@pytest.mark.parametrize(("own", "source"), [(0, 3), (5, 3), (6, 2)])
def test_the_corpus_counts_five_tokens_less(own: int, source: int) -> None:
    corpus = np.array([0, *ALPHABET], np.int32)
    drafter = sam(corpus=corpus)
    own_text = [*ALPHABET[11 - own : 11], *range(300, 350)] if own else [500]
    drafter.start(start("a", [*own_text, 600, *ALPHABET[:11]]))
    tree = grow(drafter, "a", 4)
    assert set(tree.source[1:].tolist()) == {source}
    assert tree.token.tolist() == [110, *([111, 112, 113, 114] if source == 3 else [300, 301, 302, 303])]


def test_a_short_match_in_the_corpus_is_not_copied() -> None:
    drafter = sam(corpus=np.array(ALPHABET, np.int32))
    drafter.start(start("a", ALPHABET[:9]))
    assert grow(drafter, "a").n_nodes == 1
    commit(drafter, "a", ALPHABET[8], ALPHABET[9:10])
    assert grow(drafter, "a", 2).source.tolist() == [0, 3, 3]


def test_a_full_scope_begins_anew() -> None:
    drafter = sam(max_tokens=70)
    drafter.start(start("a", ALPHABET))
    drafter.start(start("b", ALPHABET[:5]))
    assert grow(drafter, "b").n_nodes == 41
    commit(drafter, "a", 0, list(range(200, 220)))
    drafter.start(start("c", ALPHABET[:5]))
    assert grow(drafter, "c").n_nodes == 1
    assert grow(drafter, "b").n_nodes == 41
