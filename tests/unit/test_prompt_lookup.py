"""Prompt lookup against a scan of the whole text."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.prompt_lookup import PromptLookup
from tts_orch.records import SamplingParams


def start(name: str, tokens: list[int]) -> TrajectoryStart:
    return TrajectoryStart(name, np.array(tokens, np.int32), "scope", 0, SamplingParams())


def scan(tokens: list[int], max_match: int, n_tokens: int) -> tuple[list[int], int]:
    """The definition: longest match first, then the earliest occurrence that a full continuation follows."""
    for n in range(max_match, 0, -1):
        for begin in range(len(tokens) - n - n_tokens + 1):
            if tokens[begin : begin + n] == tokens[-n:]:
                return tokens[begin + n : begin + n + n_tokens], n
    return [], 0


def commit(drafter: PromptLookup, name: str, tokens: list[int]) -> None:
    none = np.zeros((1, 0), np.int32)
    step = VerifiedStep(
        name, DraftTree.root_only(0), np.zeros(0, np.int32), np.array(tokens, np.int32), none, none.astype(np.float32)
    )
    drafter.observe([step])


@given(
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    steps=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), max_size=6),
    max_match=st.integers(1, 4),
    n_tokens=st.integers(1, 6),
)
def test_equals_a_scan(prompt: list[int], steps: list[list[int]], max_match: int, n_tokens: int) -> None:
    drafter = PromptLookup(max_match, n_tokens)
    drafter.start(start("a", prompt))
    text = list(prompt)
    for step in [[], *steps]:
        commit(drafter, "a", step)
        text += step
        tree = drafter.slots(["a"]).grow([n_tokens])[0]
        continuation, match_length = scan(text, max_match, n_tokens)
        assert tree.token.tolist() == [text[-1], *continuation]
        assert tree.source.tolist() == [0] + [match_length] * len(continuation)


def test_budget_and_text() -> None:
    drafter = PromptLookup(n_tokens=4)
    drafter.start(start("a", [1, 2, 3, 4, 5, 6, 1]))
    drafter.start(start("b", [1, 2, 3, 4, 5, 6, 1, 2]))
    short, none = drafter.slots(["b", "a"]).grow([3, 0])
    assert short.token.tolist() == [2, 3, 4, 5]
    assert none.token.tolist() == [1]
    drafter.close("a")
    commit(drafter, "b", [9])
    assert drafter.slots(["b"]).grow([4])[0].n_nodes == 1
