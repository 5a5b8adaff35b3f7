"""How much of a trajectory was said before: in its prompt, or by the earlier trajectories of its problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["ORDERS", "ngram_overlap"]

ORDERS: Final = (1, 2, 3, 4)


def ngram_overlap(prompt: Sequence[int], trajectories: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Return the share of each trajectory's n-grams that stand in the prompt or in a trajectory before it.

    An n-gram counts for the trajectory in which its last token lies, so the first ones reach back into the prompt.

    Args:
        prompt: token ids.
        trajectories: output tokens in the order in which they were sampled; none is empty.

    Returns:
        `[trajectories, orders]` shares between 0 and 1, orders 1 to 4.

    Source: arXiv 2506.04708, the motivation of STAND.
    """
    known = [set(_ngrams(prompt, 0, n)) for n in ORDERS]
    shares = np.zeros((len(trajectories), len(ORDERS)))
    for index, output in enumerate(trajectories):
        text = [*prompt, *output]
        for column, n in enumerate(ORDERS):
            ngrams = _ngrams(text, len(prompt), n)
            shares[index, column] = sum(ngram in known[column] for ngram in ngrams) / max(1, len(ngrams))
            known[column].update(ngrams)
    return shares


def _ngrams(text: Sequence[int], start: int, n: int) -> list[tuple[int, ...]]:
    """Return the n-grams whose last token is at `start` or later."""
    return [tuple(text[end - n : end]) for end in range(max(start + 1, n), len(text) + 1)]
