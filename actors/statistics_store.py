"""The actor that hosts the default statistics store, and its client for replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, TypeVar

from ray.exceptions import RayError

from tts_orch.actors._remote import Remote, remote
from tts_orch.errors import OrchestratorError, StoreError
from tts_orch.store.base import LogRead, Snapshot
from tts_orch.store.memory import MemoryStore

__all__ = ["StatisticsClient", "StatisticsStore"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_REPLY_WITHIN_S: Final = 5.0

StatisticsStore = remote(MemoryStore, is_beside_driver=True, max_concurrency=16)


@dataclass(frozen=True, slots=True)
class StatisticsClient:
    """A `StatisticsLog` over the actor; may be sent to workers. Call it from plain threads, not from coroutines."""

    actor: Remote[MemoryStore]

    def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
        """Add a batch; see `StatisticsLog`."""
        return self._call(MemoryStore.append, scope, writer, sequence, blob, previous)

    def read(self, scope: str, after_id: int) -> LogRead:
        """Return entries after an id."""
        return self._call(MemoryStore.read, scope, after_id)

    def snapshot(self, scope: str) -> Snapshot:
        """Return the folded beginning of a scope's log."""
        return self._call(MemoryStore.snapshot, scope)

    def _call(
        self,
        method: Callable[Concatenate[MemoryStore, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        try:
            return asyncio.run(self.actor.call(_REPLY_WITHIN_S, method, *arguments, **keywords))
        except StoreError:
            raise
        except (OrchestratorError, RayError, TimeoutError) as error:
            raise StoreError(f"the statistics actor: {error}") from error
