"""What a replica has received and its table has not: handed over in portions, so that no decode step waits for much."""

from __future__ import annotations

from collections import deque

from tts_orch.policies.drafting.context_delta import ScopeDelta

__all__ = ["Inbox"]


class Inbox:
    """A queue of deltas, oldest first.

    Attributes:
        n_contexts: contexts that wait.
        n_reloads: deltas among them that replace what is known of their scope and of which nothing was taken yet.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[ScopeDelta, bool]] = deque()
        self._n_taken = 0  # contexts of the oldest delta
        self.n_contexts = 0
        self.n_reloads = 0

    def add(self, delta: ScopeDelta, *, is_reload: bool = False) -> None:
        """Queue a delta, unless it is empty."""
        if delta.contexts.n_contexts:
            self._waiting.append((delta, is_reload))
            self.n_contexts += delta.contexts.n_contexts
            self.n_reloads += is_reload

    def take(self, n_contexts: int) -> tuple[ScopeDelta, bool] | None:
        """Remove up to so many contexts of the oldest delta; None when nothing waits.

        Returns:
            A delta, and whether it replaces what is known: the first portion of a reload does, the others add to it.
        """
        if not self._waiting:
            return None
        delta, is_reload = self._waiting[0]
        first, last = self._n_taken, min(self._n_taken + n_contexts, delta.contexts.n_contexts)
        is_first, is_last = first == 0, last == delta.contexts.n_contexts
        if is_last:
            self._waiting.popleft()
        self._n_taken = 0 if is_last else last
        self.n_contexts -= last - first
        self.n_reloads -= is_reload and is_first
        return ScopeDelta(delta.scope, delta.contexts.part(first, last)), is_reload and is_first
