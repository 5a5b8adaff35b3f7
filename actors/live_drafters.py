"""The trained drafters of an orchestrator, which may change while it searches: the speed changes with them, no token does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors._ray_verifier import RayVerifier
from tts_orch.actors.engine_loading import EngineFactory
from tts_orch.actors.folder_shipping import ship_folders
from tts_orch.actors.pool_keeper import PoolKeeper
from tts_orch.actors.pool_place import place_of_pool
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.drafters.loading import pool_loader
from tts_orch.drafters.pool_link import PoolLink
from tts_orch.errors import ConfigError
from tts_orch.placement_config import PlacementConfig

__all__ = ["LiveDrafters"]

StartRayVerifier: TypeAlias = Callable[[asyncio.Event, int], Awaitable[RayVerifier]]


class LiveDrafters:
    """Adds, replaces and removes trained drafters; safe from any thread.

    Verifiers that are at work change between two steps; those that start later begin with the drafters of the time.

    Args:
        config: drafters to begin with, and where they are: on the verifiers, or in a pool, which is started.
        loop: runs the orchestrator.
        n_verifiers: that are to have their places beside a pool.
        placement: what the user says of these places.
        opened: gets what ends what is opened here.

    Raises:
        ConfigError: a drafter cannot be read, or is for another target.
        TargetError: the target cannot be found, read or served.
        ClusterError: the pool found no place, or did not load, in time.
    """

    def __init__(
        self,
        config: EngineConfig,
        loop: EventLoopThread,
        n_verifiers: int,
        placement: PlacementConfig,
        opened: ExitStack,
    ) -> None:
        self._members = list(config.members)
        self._trained = set(config.drafters)
        self._loop = loop
        self._opened = opened
        self._keeper: PoolKeeper | None = None
        self._pool: PoolLink | None = None
        if config.drafter_placement == "pooled":
            self._keeper = keeper = PoolKeeper(place_of_pool(config, n_verifiers, placement), pool_loader)
            opened.callback(lambda: loop.run(keeper.close()))
            self._pool = loop.run(keeper.start())
        self._changing = asyncio.Lock()
        self._changes: dict[str, DrafterChange] = {}
        self._order: Callable[[DrafterChange], Awaitable[None]] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """All that draft, the drafter without training among them."""
        return tuple(self._members)

    def add(self, name: str, folder: str | Path) -> None:
        """Let one more drafter draft from now on.

        Args:
            name: its own.
            folder: where it is on this machine.

        Raises:
            ConfigError: there is one of that name; it cannot be read, is for another target, or does not suit the run.
            ClusterError: there is no pool just now.
        """
        if name in self._members:
            raise ConfigError(f"drafters: there is a {name} already; give another name, or replace it")
        self._loop.run(self._put(name, Path(folder)))

    def replace(self, name: str, folder: str | Path) -> None:
        """Let another drafter take the place of a trained one; see `add`."""
        self._check(name)
        self._loop.run(self._put(name, Path(folder)))

    def remove(self, name: str) -> None:
        """Let a trained drafter draft no more; see `add`."""
        self._check(name)
        self._loop.run(self._remove(name))

    def bound(self, make_engine: EngineFactory) -> EngineFactory:
        """Return what makes engines that know the way to the pool, if there is one."""
        takes_pool: Any = make_engine  # as `load_engine` does
        return make_engine if self._pool is None else functools.partial(takes_pool, pool=self._pool)

    def follow(self, order: Callable[[DrafterChange], Awaitable[None]]) -> None:
        """From now on tell verifiers of changes by this function."""
        self._order = order

    def kept_up_to_date(self, start: StartRayVerifier) -> StartRayVerifier:
        """Return what starts a verifier as a function does, and tells it what has changed."""

        async def start_up_to_date(placed: asyncio.Event, n_out_of_memory: int) -> RayVerifier:
            verifier = await start(placed, n_out_of_memory)
            told: list[DrafterChange] = []
            while changes := [change for change in self._changes.values() if change not in told]:
                for change in changes:  # meanwhile there may be others
                    await verifier.change_drafter(change)
                told += changes
            return verifier

        return start_up_to_date

    def _check(self, name: str) -> None:
        if name not in self._trained:
            there_are = ", ".join(sorted(self._trained)) or "none"
            raise ConfigError(f"drafters: there is no trained drafter {name!r}; there are: {there_are}")

    async def _put(self, name: str, folder: Path) -> None:
        folder = DraftingConfig(drafter="neural", drafters={name: folder}).drafters[name]
        async with self._changing:
            before = None
            if self._keeper is not None:
                before = self._keeper.folders.get(name)
                change = DrafterChange(name, facts=await self._keeper.put(name, folder))
            else:
                what = f"drafter {name}"
                change = DrafterChange(name, folder=(await ship_folders({what: folder}, self._opened))[what])
            try:
                await self._tell(change)
            except ConfigError:
                if self._keeper is not None:
                    await (self._keeper.remove(name) if before is None else self._keeper.put(name, before))
                raise
            self._trained.add(name)
            if name not in self._members:
                self._members.append(name)

    async def _remove(self, name: str) -> None:
        async with self._changing:
            await self._tell(DrafterChange(name))
            self._trained.discard(name)
            self._members.remove(name)
            if self._keeper is not None:
                await self._keeper.remove(name)

    async def _tell(self, change: DrafterChange) -> None:
        before = dict(self._changes)
        self._changes[change.name] = change
        try:
            if self._order is not None:
                await self._order(change)
        except ConfigError:
            self._changes = before
            raise
