"""Sends the target and the trained drafters to nodes that lack them, before their engines are loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tts_orch.actors.engine_loading import Engine, EngineFactory
from tts_orch.actors.folder_shipping import ShippedFolder, ship_folders
from tts_orch.config import EngineConfig
from tts_orch.engine.model_files import locate
from tts_orch.errors import ConfigError
from tts_orch.store.base import StatisticsLog

__all__ = ["ShippingFactory", "ship_models", "target_folder"]

_TARGET: Final = "the target"


@dataclass(frozen=True, slots=True)
class ShippingFactory:
    """An `EngineFactory` that fetches models first; sent to workers.

    Attributes:
        target: the target's files, None where every node finds them by itself.
        drafters: those of the trained drafters, by name.
        make_engine: loads the engine from folders of the node.
    """

    target: ShippedFolder | None
    drafters: Mapping[str, ShippedFolder]
    make_engine: EngineFactory

    def __call__(self, config: EngineConfig, log: StatisticsLog | None) -> Engine:
        """Load the engine.

        Raises:
            TargetError: a file arrived damaged, or there is no room for it.
            WorkerLostError: the driver's node is gone.
        """
        target = {"target": str(self.target.fetch())} if self.target else {}
        drafters = {name: folder.fetch() for name, folder in self.drafters.items()}
        here = {**target, "drafters": {**config.drafters, **drafters}}
        return self.make_engine(config.model_copy(update=here), log)


async def ship_models(
    config: EngineConfig, make_engine: EngineFactory, opened: ExitStack, *, ships_target: bool, ships_drafters: bool
) -> EngineFactory:
    """Make models of this machine ready to be fetched.

    Args:
        config: names them; a target must be a folder or a GGUF file of this machine, or the demo model.
        make_engine: loads the engine in a worker.
        opened: gets what ends it.
        ships_target: whether nodes lack the target.
        ships_drafters: whether they may lack the trained drafters.

    Returns:
        `make_engine` itself where nothing is to be sent.

    Raises:
        ConfigError: the target is a hub id.
        TargetError: there is no such target, or a file cannot be read.
        PlacementError: the actor that reads the files found no place.
    """
    target = {_TARGET: await asyncio.to_thread(target_folder, config.target)} if ships_target else {}
    are_loaded_there = ships_drafters and config.drafter_placement == "colocated"
    drafters = {name: f"drafter {name}" for name in config.drafters if are_loaded_there}
    folders = target | {what: config.drafters[name] for name, what in drafters.items()}
    if not folders:
        return make_engine
    sent = await ship_folders(folders, opened)
    return ShippingFactory(sent.get(_TARGET), {name: sent[what] for name, what in drafters.items()}, make_engine)


def target_folder(target: str) -> Path:
    """Return the folder of a target that is to be sent.

    Raises:
        ConfigError: it is a hub id.
        TargetError: there is no such target.
    """
    folder = locate(target)
    if not isinstance(folder, Path):
        raise ConfigError(
            f"ship_target: {target} is a hub id, which every node fetches by itself; leave the option out"
        )
    return folder
