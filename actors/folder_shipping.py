"""Sends folders of the driver's machine into the cache of each node that lacks them.

An actor beside the driver reads them; each node asks it for the files piece by piece, once, into a folder that is
named by what is in it, and checks the hash of every file. Pieces pass through the object store one at a time, so that a
model larger than it fits through, and a node that joins late finds them as the first one did.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tts_orch.actors._remote import Remote, remote
from tts_orch.engine.model_cache import build_once, file_digest
from tts_orch.errors import TargetError, WorkerLostError

__all__ = ["FolderSourceCore", "ShippedFile", "ShippedFolder", "ship_folders"]

_PIECE_BYTES: Final = 16 * 2**20  # several fit into the smallest object store
_PLACE_WITHIN_S: Final = 60.0
_PIECE_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class ShippedFile:
    """A file of a folder.

    Attributes:
        name: its place in the folder, with slashes.
        size: in bytes.
        digest: SHA-256 of its content, in hexadecimal.
    """

    name: str
    size: int
    digest: str


class FolderSourceCore:
    """Reads files of folders for others.

    Args:
        folders: by what they are.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders

    def read(self, what: str, name: str, start: int) -> bytes:
        """Return the next piece of a file, empty at its end."""
        with (self._folders[what] / name).open("rb") as file:
            file.seek(start)
            return file.read(_PIECE_BYTES)


FolderSource = remote(FolderSourceCore, is_beside_driver=True, max_concurrency=4)


@dataclass(frozen=True, slots=True)
class ShippedFolder:
    """A folder that can be fetched; sent to workers.

    Attributes:
        folder: where it is on the driver's machine.
        what: it is, such as `the target`.
        files: what is in it.
        source: reads them there.
    """

    folder: str
    what: str
    files: tuple[ShippedFile, ...]
    source: Remote[FolderSourceCore]

    def fetch(self) -> Path:
        """Return the folder on this machine.

        Raises:
            TargetError: a file arrived damaged, or there is no room for it.
            WorkerLostError: the driver's node is gone.
        """
        folder = Path(self.folder)
        if folder.is_dir() and _files_of(folder) == self.files:  # the driver's machine, or a shared disk
            return folder
        return build_once(f"shipped-{_digest(self.files)}", f"the files of {self.what}", self._fetch)

    def _fetch(self, folder: Path) -> None:
        try:
            asyncio.run(self._fetch_all(folder))
        except TimeoutError as error:  # an OSError, but none of this machine's disk
            raise WorkerLostError(f"the driver's machine does not send the files of {self.what}: {error}") from error

    async def _fetch_all(self, folder: Path) -> None:
        for file in self.files:
            place = folder / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            if await self._fetch_file(file, place) != file.digest:
                raise TargetError(
                    f"{self.folder}/{file.name}: arrived damaged; leave the folder of {self.what} as it is, and start again"
                )

    async def _fetch_file(self, file: ShippedFile, place: Path) -> str:
        """Write a file; returns the digest of what arrived."""
        digest, n_bytes = hashlib.sha256(), 0
        with place.open("wb") as written:
            while n_bytes < file.size:
                read = FolderSourceCore.read
                piece = await self.source.call(_PIECE_WITHIN_S, read, self.what, file.name, n_bytes)
                if not piece:  # it has become shorter
                    break
                n_bytes += written.write(piece)
                digest.update(piece)
        return digest.hexdigest()


async def ship_folders(folders: Mapping[str, Path], opened: ExitStack) -> dict[str, ShippedFolder]:
    """Make folders of this machine ready to be fetched.

    Args:
        folders: by what they are.
        opened: gets what ends it.

    Raises:
        TargetError: a file cannot be read.
        PlacementError: the actor that reads the files found no place.
    """
    places = {what: folder.resolve() for what, folder in folders.items()}
    files = {what: await asyncio.to_thread(_files_of, place) for what, place in places.items()}
    source = await FolderSource.create(_PLACE_WITHIN_S, {"num_cpus": 0}, places)
    opened.callback(source.kill)
    return {what: ShippedFolder(str(place), what, files[what], source) for what, place in places.items()}


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
        raise TargetError(f"{error.filename}: {error.strerror}; make it readable, or give another folder") from None


def _digest(files: tuple[ShippedFile, ...]) -> str:
    content = "".join(f"{file.name} {file.digest}\n" for file in files)
    return hashlib.sha256(content.encode()).hexdigest()[:32]
