"""ANPD against counting in the whole text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.drafting.anpd import Anpd
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.records import SamplingParams


def start(name: str, tokens: list[int]) -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), "scope", 0, SamplingParams())


def commit(drafter: Anpd, name: str, tokens: list[int]) -> None:
    none, nothing = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    step = VerifiedStep(
        name, DraftTree.root_only(0), nothing, np.array(tokens, np.int32), none, none.astype(np.float32)
    )
    drafter.observe([step])


def count(tokens: list[int], drafted: list[int], max_order: int) -> tuple[int, int, float] | None:
    """The definition: longest context that was ever followed, most frequent successor, of equals the latest."""
    for length in range(max_order - 1, 0, -1):
        context = (tokens + drafted)[-length:]
        places = [i for i in range(length, len(tokens)) if tokens[i - length : i] == context]
        if len(context) == length and places:
            followers = [tokens[place] for place in places]
            best = max(reversed(followers), key=followers.count)
            return best, length + 1, followers.count(best) / (len(followers) + 1)
    return None


@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    steps=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=5),
    max_order=st.integers(2, 5),
    n_tokens=st.integers(1, 6),
    n_nodes=st.integers(0, 6),
)
def test_equals_counting(
    prompt: list[int], steps: list[list[int]], max_order: int, n_tokens: int, n_nodes: int
) -> None:
    drafter = Anpd(max_order, n_tokens)
    drafter.start(start("a", prompt))
    text = list(prompt)
    for step in [[], *steps]:
        commit(drafter, "a", step)
        text += step
        tree = drafter.slots(["a"]).grow([n_nodes])[0]
        drafted: list[int] = []
        orders, kinds = [0], [0]
        while len(drafted) < min(n_nodes, n_tokens) and (guess := count(text, drafted, max_order)):
            drafted.append(guess[0])
            orders.append(guess[1])
            kinds.append((guess[1] - 2) * 8 + int(guess[2] * 8 + 1e-9))
        assert tree.token.tolist() == [text[-1], *drafted]
        assert tree.parent.tolist() == list(range(-1, len(drafted)))
        assert tree.source.tolist() == orders
        assert tree.kind.tolist() == kinds
        assert max(kinds) < len(drafter.priors)


@pytest.mark.parametrize(
    ("text", "drafted", "orders"),
    [
        ([1, 2, 3, 1, 2, 4, 1, 2, 3, 7, 1, 2], [3, 7, 1], [3, 3, 3]),  # 3 twice, 4 once
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2], [3, 3, 3]),  # of equals the latest
        ([1, 2, 3, 9, 2], [3, 9, 2], [2, 3, 3]),  # a new pair: back to one token of context
        ([1, 2, 3], [], []),
    ],
)
def test_examples(text: list[int], drafted: list[int], orders: list[int]) -> None:
    drafter = Anpd(max_order=3, n_tokens=3)
    drafter.start(start("a", text))
    tree = drafter.slots(["a"]).grow([10])[0]
    assert tree.token.tolist()[1:] == drafted
    assert tree.source.tolist()[1:] == orders


def test_trajectories_know_their_own_text_alone() -> None:
    drafter = Anpd(n_tokens=4)
    drafter.start(start("a", [1, 2, 3, 1]))
    drafter.start(start("b", [1, 2, 3, 1, 2]))
    drafter.start(start("c", [1]))
    short, none, ignorant = drafter.slots(["b", "a", "c"]).grow([2, 0, 4])
    assert short.token.tolist() == [2, 3, 1]
    assert none.token.tolist() == [1]
    assert ignorant.token.tolist() == [1]
    drafter.close("a")
    commit(drafter, "b", [9])
    assert drafter.slots(["b"]).grow([4])[0].n_nodes == 1


def test_longer_contexts_and_larger_shares_promise_more() -> None:
    priors = Anpd(max_order=5).priors.reshape(4, 8)
    assert ((priors > 0) & (priors < 1)).all()
    assert (np.diff(priors, axis=0) > 0).all()
    assert (np.diff(priors, axis=1) > 0).all()
