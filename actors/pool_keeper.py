"""Keeps a pool of drafters alive: watched, and started anew when it is lost. Nobody waits for it, drafts are dispensable."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from tts_orch.actors._cluster_nodes import current_node, read_nodes
from tts_orch.actors._remote import Remote
from tts_orch.actors.drafter_pool import DrafterPool, DrafterPoolCore, LoaderFactory, RayPoolTransport
from tts_orch.config import EngineConfig
from tts_orch.drafters.pool_link import PoolLink
from tts_orch.drafters.pool_messages import MemberFacts
from tts_orch.errors import ClusterError, WorkerLostError, first_line

__all__ = ["PoolKeeper", "place_of_pool"]

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_LOST: Final = "the pool of drafters is lost: %s; candidates go on without its drafts until another is there"
_PLACE_WITHIN_S: Final = 120.0
_LOAD_WITHIN_S: Final = 1800.0  # weights may have to be fetched
_LOOK_EVERY_S: Final = 2.0
_PING_WITHIN_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 60.0


def place_of_pool(config: EngineConfig, n_verifiers: int, gpus_each: float) -> tuple[EngineConfig, dict[str, float]]:
    """Return a pool's settings and what it asks Ray for.

    It gets a GPU of the driver's node where verifiers leave one; CPUs it shares with the verifiers, which wait for it or have
    GPUs. What it computes need not be bit-stable: drafts change no token.
    """
    here = next((node for node in read_nodes() if node.id == current_node()), None)
    gpus = here.total.get("GPU", 0) if here is not None and config.device != "cpu" else 0
    config = config.model_copy(update={"numerics": "fast"})
    if gpus >= gpus_each * (n_verifiers + 1):
        return config, {"num_cpus": 0, "num_gpus": gpus_each}
    return config.model_copy(update={"device": "cpu"}), {"num_cpus": 0}


class PoolKeeper:
    """Keeps one pool at work; all methods belong to one event loop.

    Args:
        config: settings of the target and of drafting; `drafters` are those to begin with.
        resources: what the pool asks Ray for.
        make_loader: gives what loads drafters, in the pool.
    """

    def __init__(self, config: EngineConfig, resources: Mapping[str, float], make_loader: LoaderFactory) -> None:
        self._config = config
        self._make_loader = make_loader
        self._resources = resources
        self._folders = dict(config.drafters)
        self._name = f"drafter-pool-{uuid.uuid4().hex}"
        self._actor: Remote[DrafterPoolCore] | None = None
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> PoolLink:
        """Start the pool; returns what verifiers need of it.

        Raises:
            UserError: the target or a drafter cannot be found or read, or they do not fit together.
            ClusterError: the pool found no place, or did not load, in time.
            WorkerLostError: it died while loading.
        """
        facts = await self._hire()
        self._watching = asyncio.ensure_future(self._watch())
        return PoolLink(RayPoolTransport(self._name), facts)

    @property
    def folders(self) -> Mapping[str, Path]:
        """Where its drafters come from, by name."""
        return self._folders

    async def put(self, name: str, folder: Path) -> MemberFacts:
        """Add or replace a drafter, in later pools too.

        Raises:
            UserError: it cannot be found or read, or does not fit the target.
            ClusterError: there is no pool just now, or it does not answer.
        """
        facts = await self._ask(DrafterPoolCore.put, name, folder)
        self._folders[name] = folder
        return facts

    async def remove(self, name: str) -> None:
        """Take a drafter out; a pool that is started later does not get it either.

        Raises:
            ClusterError: the pool does not answer.
        """
        del self._folders[name]
        if self._actor is not None:
            await self._ask(DrafterPoolCore.remove, name)

    async def close(self) -> None:
        """End the pool."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._give_up()

    async def _ask(
        self,
        method: Callable[Concatenate[DrafterPoolCore, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        if self._actor is None:
            raise ClusterError("the pool of drafters was lost and is being started anew; try again in a minute")
        try:
            return await self._actor.call(_LOAD_WITHIN_S, method, *arguments, **keywords)
        except (WorkerLostError, TimeoutError) as error:
            raise ClusterError(f"the pool of drafters: {first_line(error)}; try again in a minute") from error

    async def _hire(self) -> dict[str, MemberFacts]:
        pool = DrafterPool.named(self._name)
        actor = await pool.create(_PLACE_WITHIN_S, self._resources, self._config, self._make_loader)
        failure = "the pool of drafters did not load"
        facts = await actor.load(_LOAD_WITHIN_S, failure, DrafterPoolCore.load, self._folders)
        self._actor = actor
        return facts

    async def _watch(self) -> None:
        pause_s = _LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                if self._actor is None:
                    await self._hire()
                else:
                    await self._actor.call_health(_PING_WITHIN_S, DrafterPoolCore.ping)
                pause_s = _LOOK_EVERY_S
            except Exception as error:  # whatever it was, a pool is worth no run
                is_new = self._actor is not None
                logger.log(logging.WARNING if is_new else logging.DEBUG, _LOST, first_line(error))
                pause_s = 0.0 if is_new else min(max(2 * pause_s, _LOOK_EVERY_S), _LONGEST_PAUSE_S)
                self._give_up()

    def _give_up(self) -> None:
        if self._actor is not None:
            self._actor.kill()
            self._actor = None
