"""The contexts of n-gram statistics: the last few tokens before each law, most recent first."""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import ORDERS
from tts_orch.policies.drafting.joined_steps import JoinedSteps
from tts_orch.records import IntArray

__all__ = ["contexts_of_text", "rows_to_learn"]


@numba.njit(cache=True)
def contexts_of_text(tokens: IntArray, first: int, n: int) -> IntArray:
    """Return `[n, ORDERS]` contexts that end at positions `first`, `first + 1`, ...; -1 where the text is shorter."""
    contexts = np.full((n, ORDERS), -1, np.int32)
    for row in range(n):
        for order in range(min(ORDERS, first + row + 1)):
            contexts[row, order] = tokens[first + row - order]
    return contexts


@numba.njit(cache=True)
def rows_to_learn(
    steps: JoinedSteps, tails: IntArray, has_law: NDArray[np.bool_], accepted: bool, rejected: bool
) -> tuple[IntArray, NDArray[np.int64], NDArray[np.int64]]:
    """Choose the nodes of verify steps whose laws are learned, and move the tails over the committed tokens.

    Args:
        steps: of one pass.
        tails: `[b, ORDERS]` context of each root; afterwards that of the last committed token.
        has_law: `[n]` nodes with a law.
        accepted: whether nodes that committed a token count.
        rejected: whether the others count.

    Returns:
        `[r, ORDERS]` contexts, `[r]` nodes, and `[b]` how many are of each step.
    """
    token, parent, _, n_nodes, path, n_accepted, committed, n_committed = steps
    contexts = np.empty((len(token), ORDERS), np.int32)
    rows, n_rows, n = np.empty(len(token), np.int64), np.zeros(len(n_nodes), np.int64), 0
    is_verified = np.zeros(len(token), np.bool_)
    first, first_path, last = 0, 0, 0
    for step in range(len(n_nodes)):
        contexts[first] = tails[step]
        for node in range(first + 1, first + n_nodes[step]):
            _follow(contexts[first + parent[node]], token[node], contexts[node])
        is_verified[first], tip = True, first
        for i in range(first_path, first_path + min(n_accepted[step], n_committed[step] - 1)):
            tip = first + path[i]
            is_verified[tip] = True
        for node in range(first, first + n_nodes[step]):
            if has_law[node] and (accepted if is_verified[node] else rejected):
                rows[n] = node
                n += 1
                n_rows[step] += 1
        last += n_committed[step]
        _follow(contexts[tip], committed[last - 1], tails[step])
        first += n_nodes[step]
        first_path += n_accepted[step]
    return contexts[rows[:n]], rows[:n], n_rows


@numba.njit(inline="always")
def _follow(context: IntArray, token: int, longer: IntArray) -> None:
    """Write the context that ends one token later."""
    for order in range(ORDERS - 1, 0, -1):
        longer[order] = context[order - 1]
    longer[0] = token
