"""A verifier that runs as a Ray actor, seen from the driver."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._remote import Remote
from tts_orch.actors.cluster import Shares
from tts_orch.actors.engine_loading import EngineFactory
from tts_orch.actors.target_verifier import LogOpener, TargetVerifier, TargetVerifierCore, VerifierDescription
from tts_orch.config import EngineConfig
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest

__all__ = ["RayVerifier"]

_LOAD_WITHIN_S: Final = 1800.0  # weights may have to be fetched, kernels compiled
_POLL_S: Final = 1.0
_REPLY_WITHIN_S: Final = 30.0  # over the poll's own wait; a busy interpreter may be late
_CHANGE_WITHIN_S: Final = 600.0  # a drafter may have to be fetched
_PING_WITHIN_S: Final = 10.0
_CLOSE_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class RayVerifier:
    """A `Verifier`: every call has its deadline here."""

    actor: Remote[TargetVerifierCore]
    description: VerifierDescription

    @classmethod
    async def start(
        cls,
        shares: Shares,
        place_within_s: float,
        make_engine: EngineFactory,
        open_log: LogOpener | None,
        placed: asyncio.Event,
        n_out_of_memory: int,
    ) -> RayVerifier:
        """Place an actor and load its engine.

        Args:
            shares: its settings, and the resources that it asks for.
            place_within_s: how long it may wait for a place.
            make_engine: loads the engine in the actor.
            open_log: opens the log of the draft statistics in the actor, None without one.
            placed: set once it has found a place.
            n_out_of_memory: verifiers that were lost for want of memory; from the second one on, each halves the batch.

        Raises:
            PlacementError: it found no place in time.
            ClusterError: it did not load in time.
            TargetError: the target model cannot be found, read or served.
            WorkerLostError: it died while loading.
        """
        config = _sparing(shares.config, max(n_out_of_memory - 1, 0))
        actor = await TargetVerifier.create(place_within_s, shares.resources, config, make_engine, open_log)
        placed.set()
        failure = f"a worker did not load {config.target}"
        return cls(actor, await actor.load(_LOAD_WITHIN_S, failure, TargetVerifierCore.load))

    async def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
    ) -> tuple[int, list[Chunk]]:
        """Do as `TargetVerifierCore.exchange`, waiting a second for chunks."""
        deadline_s = _POLL_S + _REPLY_WITHIN_S
        return await self.actor.call(deadline_s, TargetVerifierCore.exchange, submit, cancel, acknowledged, _POLL_S)

    async def order(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        """Take orders beside a running exchange."""
        await self.actor.call(_REPLY_WITHIN_S, TargetVerifierCore.order, submit, cancel)

    async def ping(self) -> None:
        """Return if the process answers."""
        await self.actor.call_health(_PING_WITHIN_S, TargetVerifierCore.ping)

    async def statistics(self) -> dict[str, float]:
        """Return the decoder's counters."""
        return await self.actor.call(_REPLY_WITHIN_S, TargetVerifierCore.statistics)

    async def routing_report(self) -> RoutingReport:
        """Return what its drafters did since it was asked last."""
        return await self.actor.call(_REPLY_WITHIN_S, TargetVerifierCore.routing_report)

    async def change_drafter(self, change: DrafterChange) -> None:
        """Draft with changed drafters."""
        await self.actor.call(_CHANGE_WITHIN_S, TargetVerifierCore.change_drafter, change)

    async def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        await self.actor.call(_REPLY_WITHIN_S, TargetVerifierCore.close_scope, scope)

    async def close(self) -> None:
        """Let it finish its step, send what it has to send and end."""
        try:
            with contextlib.suppress(Exception):  # one that does not answer is killed all the same
                await self.actor.call(_CLOSE_WITHIN_S, TargetVerifierCore.close)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.actor.kill()


def _sparing(config: EngineConfig, n_halvings: int) -> EngineConfig:
    """Return settings that need less memory; what they leave out costs speed, never a token."""
    batch, kv_memory_gib = max(config.max_batch >> n_halvings, 1), config.kv_memory_gib / 2**n_halvings
    return config.model_copy(update={"max_batch": batch, "kv_memory_gib": kv_memory_gib})
