"""Seconds and tokens that a search may spend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Budget"]


class Budget:
    """Counts what is spent and tells everybody who watches once it is too much; belongs to one event loop.

    Args:
        seconds: from `start` on; None for no limit.
        tokens: None for no limit.
        ends: names of what is spent then, the seconds or the tokens.

    Attributes:
        spent: name of what was spent first, empty before.
    """

    def __init__(self, seconds: float | None, tokens: int | None, ends: tuple[str, str]) -> None:
        self.spent = ""
        self._seconds = seconds
        self._tokens = tokens
        self._deadline, self._token_budget = ends
        self._n_tokens = 0
        self._ended: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._watchers: list[Callable[[str], None]] = []

    def start(self) -> None:
        """Let the time run, if it does not yet."""
        if self._seconds is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self._end, self._deadline)

    def book(self, n_tokens: int) -> None:
        """Spend tokens."""
        self._n_tokens += n_tokens
        if self._tokens is not None and self._n_tokens >= self._tokens:
            self._end(self._token_budget)

    def watch(self, on_spent: Callable[[str], None]) -> None:
        """Have a function called with the name of what is spent, once for the seconds and once for the tokens.

        What is spent already is named at once.
        """
        self._watchers.append(on_spent)
        for what in self._ended:
            on_spent(what)

    def unwatch(self, on_spent: Callable[[str], None]) -> None:
        """Forget a function."""
        self._watchers.remove(on_spent)

    def close(self) -> None:
        """Stop the clock."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, what: str) -> None:
        if what in self._ended:
            return
        self._ended.append(what)
        self.spent = self.spent or what
        for watcher in list(self._watchers):
            watcher(what)
