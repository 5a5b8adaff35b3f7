"""The statistics scopes in use: who uses them, and when the verifiers may forget them."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.records import Path, Problem, SamplingParams

__all__ = ["OpenScopes"]


class OpenScopes:
    """Has each scope closed, once, when nobody will use it any more; all methods belong to one event loop.

    A scope of a request or a problem ends with its last user. Those of a task or a run wait for problems to come, until
    `forget`.

    Args:
        names: of scopes.
        close: drops the statistics of a scope everywhere.
    """

    def __init__(self, names: ScopeNames, close: Callable[[str], Coroutine[Any, Any, None]]) -> None:
        self._names = names
        self._close = close
        self._users: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def end_with_candidates(self) -> bool:
        """Whether a candidate is all that uses its scope."""
        return self._names.config.statistics_scope == "request"

    @property
    def _outlive_problems(self) -> bool:
        return self._names.config.statistics_scope in ("task", "run")

    def name(self, problem: Problem, path: Path, law: SamplingParams) -> str:
        """Return the scope of a candidate."""
        return self._names.name(problem, path, law)

    def enter(self, scope: str) -> None:
        """Count one more user."""
        self._users[scope] += 1

    def leave(self, scope: str) -> None:
        """Count one user less; where it was the last, the scope is closed soon."""
        self._users[scope] -= 1
        if not self._users[scope] and not self._outlive_problems:
            self._end(scope)

    async def settle(self) -> None:
        """Wait until what ended is closed."""
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def forget(self) -> None:
        """Close every scope without a user; who comes later shares nothing with what was before."""
        self._names = replace(self._names, generation=uuid.uuid4().hex)
        for scope in [scope for scope, users in self._users.items() if not users]:
            self._end(scope)
        await self.settle()

    def _end(self, scope: str) -> None:
        del self._users[scope]
        task = asyncio.ensure_future(self._close(scope))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
