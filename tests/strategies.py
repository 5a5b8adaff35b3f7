"""Hypothesis strategies for the values that cross module borders."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_tree import DraftTree
from tts_orch.records import SamplingParams


def _off_or(off: float, values: st.SearchStrategy[float]) -> st.SearchStrategy[float]:
    return st.just(off) | values


@st.composite
def sampling_params(draw: st.DrawFn, vocabulary_size: int = 97, max_new_tokens: int = 64) -> SamplingParams:
    """Laws with each processor on or off; every stop id and bias is within the vocabulary."""
    token_ids = st.integers(0, vocabulary_size - 1)
    n_new_tokens = draw(st.integers(1, max_new_tokens))
    return SamplingParams(
        temperature=draw(_off_or(0.0, st.floats(0.2, 2.0))),
        top_k=draw(st.just(0) | st.integers(1, vocabulary_size)),
        top_p=draw(_off_or(1.0, st.floats(0.05, 1.0))),
        min_p=draw(_off_or(0.0, st.floats(0.0, 0.5))),
        repetition_penalty=draw(_off_or(1.0, st.floats(0.7, 1.5))),
        presence_penalty=draw(_off_or(0.0, st.floats(-1.0, 1.0))),
        frequency_penalty=draw(_off_or(0.0, st.floats(-1.0, 1.0))),
        min_new_tokens=draw(st.integers(0, min(4, n_new_tokens))),
        max_new_tokens=n_new_tokens,
        stop_ids=draw(st.lists(token_ids, max_size=2, unique=True).map(tuple)),
        logit_bias=draw(
            st.dictionaries(token_ids, st.floats(-5.0, 5.0), max_size=3).map(lambda bias: tuple(bias.items()))
        ),
    )


@st.composite
def draft_trees(
    draw: st.DrawFn, vocabulary_size: int = 97, max_nodes: int = 16, root_token: int | None = None
) -> DraftTree:
    """Tries with up to `max_nodes` nodes below the root: siblings differ, parents come first, slots count from 0."""
    root = draw(st.integers(0, vocabulary_size - 1)) if root_token is None else root_token
    token, parent, depth, slot = [root], [-1], [0], [0]
    children: list[set[int]] = [set()]
    for _ in range(draw(st.integers(0, max_nodes))):
        above = draw(st.integers(0, len(token) - 1))
        child = draw(st.integers(0, vocabulary_size - 1))
        if child in children[above]:
            continue  # one prefix, one node
        token.append(child)
        parent.append(above)
        depth.append(depth[above] + 1)
        slot.append(len(children[above]))
        children[above].add(child)
        children.append(set())
    zeros = np.zeros(len(token), np.int32)
    return DraftTree(
        token=np.array(token, np.int32),
        parent=np.array(parent, np.int32),
        depth=np.array(depth, np.int32),
        slot=np.array(slot, np.int32),
        log_q=zeros.astype(np.float32),
        source=zeros,
        kind=zeros,
    )
