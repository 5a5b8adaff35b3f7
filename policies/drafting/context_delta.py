"""What n-gram tables tell each other: counts and integer sums to add, context by context.

Sums commute, so deltas may be coalesced and merged in any order and grouping. Nothing is cut here: cuts to the most
probable ids do not commute and happen in tables and snapshots, which are views.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["KEPT", "ORDERS", "PROBABILITY_ONE", "ContextDelta", "ScopeDelta", "coalesce"]

KEPT = 32
"""Ids that a view sums over: cutting to the 10 exposed ones while averaging would lose ids that come back."""
ORDERS = 4
"""Longest context in tokens; a table has one order for each length from 1 to this."""
PROBABILITY_ONE = 65535
"""A probability of 1 as an integer."""


@dataclass(frozen=True, slots=True)
class ContextDelta:
    """Observations of `n` contexts with `m` summed probabilities in all.

    Attributes:
        key: `[n]` uint64, hash of the context's order and tokens.
        order: `[n]` uint8, tokens in the context.
        count: `[n]` int64, observations.
        start: `[n + 1]` int64, context `i` owns entries `start[i]` to `start[i + 1]` of `ids` and `sums`.
        ids: `[m]` int32.
        sums: `[m]` int64, sums of quantised probabilities, positive.
    """

    key: NDArray[np.uint64]
    order: NDArray[np.uint8]
    count: NDArray[np.int64]
    start: NDArray[np.int64]
    ids: NDArray[np.int32]
    sums: NDArray[np.int64]

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self.key)

    @classmethod
    def empty(cls) -> ContextDelta:
        """Return the delta that changes nothing."""
        return cls(
            key=np.zeros(0, np.uint64),
            order=np.zeros(0, np.uint8),
            count=np.zeros(0, np.int64),
            start=np.zeros(1, np.int64),
            ids=np.zeros(0, np.int32),
            sums=np.zeros(0, np.int64),
        )

    def part(self, first: int, last: int) -> ContextDelta:
        """Return contexts `first` to `last`, without the latter."""
        start = self.start[first : last + 1]
        pairs, contexts = slice(start[0], start[-1]), slice(first, last)
        columns = self.key[contexts], self.order[contexts], self.count[contexts]
        return ContextDelta(*columns, start - start[0], self.ids[pairs], self.sums[pairs])

    def where(self, is_kept: NDArray[np.bool_]) -> ContextDelta:
        """Return some of the contexts, `[n]`; for views only."""
        n_ids = np.diff(self.start)
        pairs = np.repeat(is_kept, n_ids)
        start = np.concatenate([[0], np.cumsum(n_ids[is_kept])])
        columns = self.key[is_kept], self.order[is_kept], self.count[is_kept]
        return ContextDelta(*columns, start, self.ids[pairs], self.sums[pairs])

    def cut(self, n_ids: int) -> ContextDelta:
        """Return the delta with at most `n_ids` ids a context, the largest sums, ties to the lowest id; for views only."""
        from tts_orch.policies.drafting.delta_sums import largest  # loads numba, which a driver does not need

        start, kept = largest(self.start, self.ids, self.sums, n_ids)
        return ContextDelta(self.key, self.order, self.count, start, self.ids[kept], self.sums[kept])


@dataclass(frozen=True, slots=True)
class ScopeDelta:
    """A delta for the tables of one scope."""

    scope: str
    contexts: ContextDelta


def coalesce(deltas: Sequence[ContextDelta]) -> ContextDelta:
    """Add deltas up in canonical form: every key once, ascending, and every id of a key once, ascending."""
    from tts_orch.policies.drafting.delta_sums import add_up  # loads numba, which a driver does not need

    if not deltas:
        return ContextDelta.empty()
    key = np.concatenate([d.key for d in deltas])
    columns = (
        key,
        np.concatenate([d.order for d in deltas]),
        np.concatenate([d.count for d in deltas]),
        np.concatenate([[0], np.cumsum(np.concatenate([d.start[1:] - d.start[:-1] for d in deltas]))]),
        np.concatenate([d.ids for d in deltas]),
        np.concatenate([d.sums for d in deltas]),
    )
    return ContextDelta(*add_up(columns, np.argsort(key, kind="stable")))
