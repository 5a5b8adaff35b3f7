"""The contexts of n-gram statistics: the last few tokens before each law, most recent first."""

from __future__ import annotations

import numba
import numpy as np

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.records import IntArray

__all__ = ["contexts_of_text", "contexts_of_tree"]


@numba.njit(cache=True)
def contexts_of_text(tokens: IntArray, first: int, n: int) -> IntArray:
    """Return `[n, ORDERS]` contexts that end at positions `first`, `first + 1`, ...; -1 where the text is shorter."""
    contexts = np.full((n, ORDERS), -1, np.int32)
    for row in range(n):
        for order in range(min(ORDERS, first + row + 1)):
            contexts[row, order] = tokens[first + row - order]
    return contexts


@numba.njit(cache=True)
def contexts_of_tree(token: IntArray, parent: IntArray, tail: IntArray) -> IntArray:
    """Return `[n, ORDERS]` contexts that end at the nodes of a tree whose root has the context `tail`."""
    contexts = np.empty((len(token), ORDERS), np.int32)
    contexts[0] = tail
    for node in range(1, len(token)):
        contexts[node, 0] = token[node]
        for order in range(1, ORDERS):
            contexts[node, order] = contexts[parent[node], order - 1]
    return contexts
