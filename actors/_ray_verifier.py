"""A verifier that runs as a Ray actor, seen from the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.actors._remote import Remote
from tts_orch.actors.engine_loading import EngineFactory
from tts_orch.actors.target_verifier import TargetVerifier, TargetVerifierCore, VerifierDescription
from tts_orch.config import EngineConfig
from tts_orch.errors import ClusterError, first_line
from tts_orch.records import Chunk, DecodeRequest
from tts_orch.store.base import StatisticsLog

__all__ = ["RayVerifier"]

_PLACE_WITHIN_S: Final = 120.0
_LOAD_WITHIN_S: Final = 1800.0  # weights may have to be fetched, kernels compiled
_POLL_S: Final = 1.0
_REPLY_WITHIN_S: Final = 30.0  # over the poll's own wait; a busy interpreter may be late
_PING_WITHIN_S: Final = 10.0
_CLOSE_WITHIN_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class RayVerifier:
    """A `Verifier`: every call has its deadline here."""

    actor: Remote[TargetVerifierCore]
    description: VerifierDescription

    @classmethod
    async def start(
        cls, resources: Mapping[str, float], config: EngineConfig, make_engine: EngineFactory, log: StatisticsLog | None
    ) -> RayVerifier:
        """Place an actor and load its engine.

        Raises:
            ClusterError: it found no place, or did not load, in time.
            TargetError: the target model cannot be found, read or served.
            WorkerLostError: it died while loading.
        """
        actor = await TargetVerifier.create(_PLACE_WITHIN_S, resources, config, make_engine, log)
        try:
            return cls(actor, await actor.call(_LOAD_WITHIN_S, TargetVerifierCore.load))
        except TimeoutError as error:
            actor.kill()
            raise ClusterError(
                f"a worker did not load {config.target} ({first_line(error)}); see `ray logs`"
            ) from error
        except BaseException:
            actor.kill()
            raise

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

    async def close_scope(self, scope: str) -> None:
        """Forget the draft statistics of a scope."""
        await self.actor.call(_REPLY_WITHIN_S, TargetVerifierCore.close_scope, scope)

    async def close(self) -> None:
        """Let it finish its step, send what it has to send and end."""
        with contextlib.suppress(Exception):  # one that does not answer is killed all the same
            await self.actor.call(_CLOSE_WITHIN_S, TargetVerifierCore.close)
        self.kill()

    def kill(self) -> None:
        """End it at once."""
        self.actor.kill()
