"""The actor that hosts trained drafters for all verifiers, and the way to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TypeAlias

import ray

from tts_orch.actors._remote import SHORT_SPIN, Remote, remote
from tts_orch.actors.folder_shipping import ShippedFolder
from tts_orch.config import EngineConfig
from tts_orch.drafters.pool_host import PoolHost
from tts_orch.drafters.pool_messages import MemberFacts, PoolReply, PoolRequest
from tts_orch.engine.model_options import device_named
from tts_orch.policies.drafting.draft_tree import Drafter

__all__ = ["DrafterFolder", "DrafterLoader", "DrafterPool", "DrafterPoolCore", "LoaderFactory", "RayPoolTransport"]

DrafterLoader: TypeAlias = Callable[[Path], Drafter]
"""Loads a trained drafter from its folder."""
DrafterFolder: TypeAlias = Path | ShippedFolder
"""A folder that is where the pool is, or is fetched from the driver's machine."""
LoaderFactory: TypeAlias = Callable[[EngineConfig], DrafterLoader]
"""Reads what trained drafters share with their target, and returns what loads them."""


class DrafterPoolCore:
    """Hosts drafters by name; none before `load`.

    Args:
        config: settings of the target and of drafting.
        make_loader: gives what loads drafters.
    """

    def __init__(self, config: EngineConfig, make_loader: LoaderFactory) -> None:
        self._config = config
        self._make_loader = make_loader
        self._host = PoolHost({})

    def load(self, folders: Mapping[str, DrafterFolder], target: ShippedFolder | None = None) -> dict[str, MemberFacts]:
        """Load drafters by name; called once, before any other is put.

        Args:
            folders: of the drafters.
            target: the target's files, None where this node finds them by itself.

        Raises:
            UserError: the target or a drafter cannot be found or read, or they do not fit together.
            WorkerLostError: the driver's node is gone.
        """
        there = {"target": str(target.fetch())} if target else {}
        self._load = self._make_loader(self._config.model_copy(update=there))
        for name, folder in folders.items():
            self._host.put(name, self._load(_here(folder)))
        return self._host.describe()

    def place(self) -> str:
        """Say where it drafts."""
        return f"node {ray.util.get_node_ip_address()}, {device_named(self._config.device).type}"

    def put(self, name: str, folder: DrafterFolder) -> MemberFacts:
        """Add a drafter, or replace the one of that name, while others draft; raises as `load` does."""
        self._host.put(name, self._load(_here(folder)))
        return self._host.describe()[name]

    def remove(self, name: str) -> None:
        """Take a drafter out."""
        self._host.remove(name)

    def propose(self, request: PoolRequest) -> PoolReply:
        """Return trees; see `PoolHost.propose`."""
        return self._host.propose(request)

    def ping(self) -> None:
        """Answer; runs in the health group."""


def _here(folder: DrafterFolder) -> Path:
    return folder.fetch() if isinstance(folder, ShippedFolder) else folder


DrafterPool = remote(DrafterPoolCore, is_beside_driver=True, max_concurrency=32, runtime_env={"env_vars": SHORT_SPIN})


class RayPoolTransport:
    """A `PoolTransport` to the pool that has a name; may be sent to workers.

    Args:
        name: of the actor, and of the one that replaces it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._actor: Remote[DrafterPoolCore] | None = None

    def send(self, request: PoolRequest) -> Future[PoolReply]:
        """Send a request, without waiting."""
        if self._actor is None:
            self._actor = Remote.named(self._name)
        return self._actor.begin(DrafterPoolCore.propose, request)

    def reset(self) -> None:
        """Look for the actor anew with the next request."""
        self._actor = None
