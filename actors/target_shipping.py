"""Sends the target's files from the driver's machine into the cache of each node that lacks them.

An actor beside the driver reads the folder; each node asks it for the files piece by piece, once, into a folder that is
named by what is in it, and checks the hash of every file. Pieces pass through the object store one at a time, so that a
model larger than it fits through, and a node that joins late finds them as the first one did.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tts_orch.actors._remote import Remote, remote
from tts_orch.actors.engine_loading import Engine, EngineFactory
from tts_orch.config import EngineConfig
from tts_orch.engine.model_cache import build_once, file_digest
from tts_orch.engine.model_files import locate
from tts_orch.errors import ConfigError, TargetError, WorkerLostError
from tts_orch.store.base import StatisticsLog

__all__ = ["ShippedFile", "ShippingFactory", "TargetSourceCore", "ship_target"]

_PIECE_BYTES: Final = 16 * 2**20  # several fit into the smallest object store
_PLACE_WITHIN_S: Final = 60.0
_PIECE_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file of the target.

    Attributes:
        name: its place in the folder, with slashes.
        size: in bytes.
        digest: SHA-256 of its content, in hexadecimal.
    """

    name: str
    size: int
    digest: str


class TargetSourceCore:
    """Reads files of a folder for others.

    Args:
        folder: the target's.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def read(self, name: str, start: int) -> bytes:
        """Return the next piece of a file, empty at its end."""
        with (self._folder / name).open("rb") as file:
            file.seek(start)
            return file.read(_PIECE_BYTES)


TargetSource = remote(TargetSourceCore, is_beside_driver=True, max_concurrency=4)


@dataclass(frozen=True, slots=True)
class ShippingFactory:
    """An `EngineFactory` that fetches the target's files first; sent to workers.

    Attributes:
        folder: where the files are on the driver's machine.
        files: what they are.
        source: reads them there.
        make_engine: loads the engine from a folder of the node.
    """

    folder: str
    files: tuple[ShippedFile, ...]
    source: Remote[TargetSourceCore]
    make_engine: EngineFactory

    def __call__(self, config: EngineConfig, log: StatisticsLog | None) -> Engine:
        """Load the engine.

        Raises:
            TargetError: a file arrived damaged, or there is no room for it.
            WorkerLostError: the driver's node is gone.
        """
        folder = Path(self.folder)
        if not folder.is_dir() or _files_of(folder) != self.files:  # else it is the driver's machine, or a shared disk
            folder = build_once(f"shipped-{_digest(self.files)}", f"the files of {config.target}", self._fetch)
        return self.make_engine(config.model_copy(update={"target": str(folder)}), log)

    def _fetch(self, folder: Path) -> None:
        try:
            asyncio.run(self._fetch_all(folder))
        except TimeoutError as error:  # an OSError, but none of this machine's disk
            raise WorkerLostError(f"the driver's machine does not send the target's files: {error}") from error

    async def _fetch_all(self, folder: Path) -> None:
        for file in self.files:
            place = folder / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if await self._fetch_file(file, place) != file.digest:
                raise TargetError(
                    f"{self.folder}/{file.name}: arrived damaged; leave the target's folder as it is, and start again"
                )

    async def _fetch_file(self, file: ShippedFile, place: Path) -> str:
        """Write a file; returns the digest of what arrived."""
        digest, n_bytes = hashlib.sha256(), 0
        with place.open("wb") as written:
            while n_bytes < file.size:
                piece = await self.source.call(_PIECE_WITHIN_S, TargetSourceCore.read, file.name, n_bytes)
                if not piece:  # it has become shorter
                    break
                n_bytes += written.write(piece)
                digest.update(piece)
        return digest.hexdigest()


async def ship_target(target: str, make_engine: EngineFactory, opened: ExitStack) -> ShippingFactory:
    """Make the target's files ready to be fetched.

    Args:
        target: a folder or a GGUF file of this machine, or the demo model.
        make_engine: loads the engine in a worker.
        opened: gets what ends it.

    Raises:
        ConfigError: the target is a hub id.
        TargetError: there is no such target, or it cannot be read.
        PlacementError: the actor that reads the files found no place.
    """
    folder = await asyncio.to_thread(locate, target)
    if not isinstance(folder, Path):
        raise ConfigError(
            f"ship_target: {target} is a hub id, which every node fetches by itself; leave the option out"
        )
    folder = folder.resolve()
    files = await asyncio.to_thread(_files_of, folder)
    source = await TargetSource.create(_PLACE_WITHIN_S, {"num_cpus": 0}, str(folder))
    opened.callback(source.kill)
    return ShippingFactory(str(folder), files, source, make_engine)


def _files_of(folder: Path) -> tuple[ShippedFile, ...]:
    places = sorted(place for place in folder.rglob("*") if place.is_file())
    relative = [place.relative_to(folder) for place in places]
    try:
        return tuple(
            ShippedFile(name.as_posix(), (folder / name).stat().st_size, file_digest(folder / name))
            for name in relative
            if not any(part.startswith(".") for part in name.parts)  # notes of git and of the hub's client
        )
    except OSError as error:
        raise TargetError(f"{error.filename}: {error.strerror}; make it readable, or give another target") from None


def _digest(files: tuple[ShippedFile, ...]) -> str:
    content = "".join(f"{file.name} {file.digest}\n" for file in files)
    return hashlib.sha256(content.encode()).hexdigest()[:32]
