"""What a drafter has learned and not handed to other workers yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from tts_orch.policies.drafting.context_delta import ContextDelta, ScopeDelta, coalesce
from tts_orch.records import IntArray

__all__ = ["DeltaRecorder"]


class DeltaRecorder:
    """Keeps observed contexts by scope.

    Attributes:
        n_contexts: observations kept, one a context each time.
    """

    def __init__(self) -> None:
        self.n_contexts = 0
        self._deltas: dict[str, list[ContextDelta]] = defaultdict(list)

    def add(self, scopes: Sequence[str], n_rows: Sequence[int], history: IntArray, contexts: ContextDelta) -> None:
        """Keep the contexts of a batch.

        Args:
            scopes: one a trajectory.
            n_rows: observed positions of each.
            history: `[r, orders]` tokens before each position, -1 where the text is shorter: each has as many contexts.
            contexts: of all rows, in order.
        """
        ends = np.concatenate([[0], np.cumsum((history >= 0).sum(axis=1))])[np.cumsum([0, *n_rows])]
        for scope, first, last in zip(scopes, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            if last > first:
                self._deltas[scope].append(contexts.part(first, last))
        self.n_contexts += contexts.n_contexts

    def undrained(self, scope: str) -> ContextDelta:
        """Return what is kept of a scope, coalesced, and keep it."""
        return coalesce(self._deltas.get(scope, []))

    def drain(self) -> list[ScopeDelta]:
        """Return everything, coalesced by scope, and keep nothing."""
        deltas, self._deltas = self._deltas, defaultdict(list)
        self.n_contexts = 0
        return [ScopeDelta(scope, coalesce(parts)) for scope, parts in deltas.items()]
