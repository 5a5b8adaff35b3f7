"""Keeps a pool of drafters alive: watched, and started anew when it is lost. Nobody waits for it, drafts are dispensable."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from tts_orch.actors._remote import Remote
from tts_orch.actors.drafter_pool import DrafterFolder, DrafterPool, DrafterPoolCore, LoaderFactory, RayPoolTransport
from tts_orch.actors.folder_shipping import ShippedFolder, ship_folders
from tts_orch.actors.model_shipping import target_folder
from tts_orch.actors.pool_place import PoolPlace
from tts_orch.drafters.pool_link import PoolLink
from tts_orch.drafters.pool_messages import MemberFacts
from tts_orch.errors import ClusterError, WorkerLostError, first_line

__all__ = ["PoolKeeper"]

logger = logging.getLogger(__name__)

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_LOST: Final = "the pool of drafters is lost: %s; candidates go on without its drafts until another is there"
_PLACE_WITHIN_S: Final = 120.0
_LOAD_WITHIN_S: Final = 1800.0  # weights may have to be fetched
_LOOK_EVERY_S: Final = 2.0
_PING_WITHIN_S: Final = 30.0
_LONGEST_PAUSE_S: Final = 60.0


class PoolKeeper:
    """Keeps one pool at work; all methods belong to one event loop.

    Args:
        place: where it lives.
        make_loader: gives what loads drafters, in the pool.
    """

    def __init__(self, place: PoolPlace, make_loader: LoaderFactory) -> None:
        self._place = place
        self._make_loader = make_loader
        self._folders = dict(place.config.drafters)
        self._sent: dict[str, DrafterFolder] = {}
        self._target: ShippedFolder | None = None
        self._opened = ExitStack()
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
        self._sent.update(await self._sendable(self._folders))
        if self._place.ships_target:
            folder = await asyncio.to_thread(target_folder, self._place.config.target)
            self._target = (await ship_folders({"the target": folder}, self._opened))["the target"]
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
        sent = (await self._sendable({name: folder}))[name]
        facts = await self._ask(DrafterPoolCore.put, name, sent)
        self._folders[name], self._sent[name] = folder, sent
        return facts

    async def remove(self, name: str) -> None:
        """Take a drafter out; a pool that is started later does not get it either.

        Raises:
            ClusterError: the pool does not answer.
        """
        del self._folders[name], self._sent[name]
        if self._actor is not None:
            await self._ask(DrafterPoolCore.remove, name)

    async def close(self) -> None:
        """End the pool."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
        self._give_up()
        self._opened.close()

    async def _sendable(self, folders: Mapping[str, Path]) -> dict[str, DrafterFolder]:
        """Return what the pool reads drafters from: it lives on another machine perhaps."""
        if self._place.is_beside_driver:
            return {**folders}
        sent = await ship_folders({f"drafter {name}": folder for name, folder in folders.items()}, self._opened)
        return {name: sent[f"drafter {name}"] for name in folders}

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
        place, failure = self._place, "the pool of drafters did not load"
        pool = replace(DrafterPool.named(self._name), is_beside_driver=place.is_beside_driver)
        actor = await pool.create(_PLACE_WITHIN_S, place.resources, place.config, self._make_loader)
        facts = await actor.load(_LOAD_WITHIN_S, failure, DrafterPoolCore.load, self._sent, self._target)
        logger.info("the pool of drafters: %s", await actor.load(_PING_WITHIN_S, failure, DrafterPoolCore.place))
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
