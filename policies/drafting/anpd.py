"""ANPD: guess the next token from counts of the trajectory's own n-grams, longest context first, one token at a time.

Source: arXiv 2404.08698.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart
from tts_orch.policies.drafting.text_drafter import TextDrafter

__all__ = ["Anpd", "NgramText"]

_SHARES: Final = 8
"""Steps by which a node's kind tells how sure the counts are."""


class NgramText:
    """A text with counts of what followed each context; appending a token costs a few dictionary operations.

    Args:
        max_order: longest n-gram that is counted, its last token included; at least 2.
        n_tokens: the longest draft.
    """

    def __init__(self, max_order: int, n_tokens: int) -> None:
        self._n_tokens = n_tokens
        self._recent: list[int] = []
        # For each context length: context -> what followed it.
        self._successors: list[dict[tuple[int, ...], _Successors]] = [{} for _ in range(max_order - 1)]

    def append(self, token_ids: Sequence[int]) -> None:
        """Add tokens at the end."""
        for token in token_ids:
            for length, successors in enumerate(self._successors[: len(self._recent)], start=1):
                context = tuple(self._recent[-length:])
                if context not in successors:
                    successors[context] = _Successors()
                successors[context].add(token)
            self._recent = [*self._recent, token][-len(self._successors) :]

    def draft(self, n_nodes: int) -> DraftTree:
        """Return the chain of most frequent successors, up to the first token whose contexts are all new."""
        recent, orders, kinds = self._recent.copy(), [0], [0]
        while len(orders) <= min(n_nodes, self._n_tokens):
            order, successors = self._find(recent)
            if successors is None:
                break
            recent.append(successors.best)
            orders.append(order)
            kinds.append((order - 2) * _SHARES + successors.share)
        chain = DraftTree.chain(self._recent[-1], recent[len(self._recent) :])
        return replace(chain, source=np.array(orders, np.int32), kind=np.array(kinds, np.int32))

    def _find(self, recent: list[int]) -> tuple[int, _Successors | None]:
        """Return the highest order whose context is known at the end of `recent`, and what followed that context."""
        for length in range(min(len(self._successors), len(recent)), 0, -1):
            successors = self._successors[length - 1].get(tuple(recent[-length:]))
            if successors is not None:
                return length + 1, successors
        return 0, None


class _Successors:
    """Counts of the tokens that followed a context; the most frequent is the best, of equals the latest."""

    __slots__ = ("_counts", "_total", "best")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self.best = -1

    def add(self, token: int) -> None:
        """Count a token."""
        count = self._counts[token] = self._counts.get(token, 0) + 1
        self._total += 1
        if count >= self._counts.get(self.best, 0):
            self.best = token

    @property
    def share(self) -> int:
        """The best token's share of all counts and one more, so that few counts say less, in `_SHARES` steps."""
        return _SHARES * self._counts[self.best] // (self._total + 1)


class Anpd(TextDrafter):
    """A `Drafter` of one chain a trajectory; `source` is the order that hit, `kind` the order and how sure its counts are.

    Args:
        max_order: longest n-gram that is counted, its last token included; at least 2. The authors' code counts up to 3;
            5, as in their paper, drafts as well or better everywhere.
        n_tokens: the longest draft.
    """

    def __init__(self, max_order: int = 5, n_tokens: int = 10) -> None:
        super().__init__()
        self._max_order = max_order
        self._n_tokens = n_tokens

    @property
    def priors(self) -> NDArray[np.float64]:
        """Acceptance rates to begin with, by order, then by share: the longer the context, the more a share means."""
        share = (np.arange(_SHARES) + 0.5) / _SHARES
        context_length = np.arange(1, self._max_order)[:, None]
        return (share ** (2 / context_length)).reshape(-1)

    def model(self, start: TrajectoryStart) -> NgramText:
        """Return an empty text."""
        return NgramText(self._max_order, self._n_tokens)
