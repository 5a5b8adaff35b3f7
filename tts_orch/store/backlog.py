"""Deltas that wait to be sent, bounded: merged when they pile up, dropped when that is not enough."""

from __future__ import annotations

from collections.abc import Sequence

from tts_orch.policies.drafting.context_delta import ContextDelta, ScopeDelta, coalesce

__all__ = ["Backlog"]


class Backlog:
    """A queue by scope, oldest first.

    Args:
        max_contexts: beyond it deltas are coalesced, then whole scopes dropped, down to half of it; the half keeps this
            work rare while a store is away.

    Attributes:
        n_contexts: contexts that wait, before they are coalesced.
        n_dropped: contexts dropped so far.
    """

    def __init__(self, max_contexts: int) -> None:
        self._max_contexts = max_contexts
        self._waiting: dict[str, list[ContextDelta]] = {}
        self.n_contexts = 0
        self.n_dropped = 0

    def add(self, deltas: Sequence[ScopeDelta]) -> None:
        """Queue deltas."""
        for delta in deltas:
            self._waiting.setdefault(delta.scope, []).append(delta.contexts)
            self.n_contexts += delta.contexts.n_contexts
        if self.n_contexts > self._max_contexts:
            self._shrink()

    def take(self) -> tuple[str, list[ContextDelta]] | None:
        """Remove what waits longest: a scope and its deltas; None when nothing waits."""
        if not self._waiting:
            return None
        scope = next(iter(self._waiting))
        deltas = self._waiting.pop(scope)
        self.n_contexts -= sum(delta.n_contexts for delta in deltas)
        return scope, deltas

    def of(self, scope: str) -> Sequence[ContextDelta]:
        """Return what waits for a scope."""
        return tuple(self._waiting.get(scope, ()))

    def _shrink(self) -> None:
        self._waiting = {scope: [coalesce(deltas)] for scope, deltas in self._waiting.items()}
        self.n_contexts = sum(deltas[0].n_contexts for deltas in self._waiting.values())
        while self.n_contexts > self._max_contexts // 2:
            before = self.n_contexts
            self.take()
            self.n_dropped += before - self.n_contexts
