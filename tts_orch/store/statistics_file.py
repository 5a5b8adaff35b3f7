"""Draft statistics of any number of scopes as one file: to be kept, and to warm a later run with.

A ZIP archive: `index.json` says which scopes there are, `<scope>/<part>` are their packed contexts.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Final, Literal
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from pydantic import Field

from tts_orch.atomic_file import replacing
from tts_orch.errors import ConfigError, StoreError
from tts_orch.policies.drafting.context_delta import ContextDelta
from tts_orch.settings import Settings
from tts_orch.store.base import StatisticsLog
from tts_orch.store.folding import read_all, read_buckets
from tts_orch.store.wire import pack, unpack

__all__ = ["ScopeRecord", "StatisticsFile", "export_statistics", "import_scope"]

_FORMAT: Final = 1
_INDEX: Final = "index.json"
_LARGEST_PART: Final = 64 << 20
_AGAIN: Final = "give a file of `tts-orch store export`"
_UNREADABLE: Final = (BadZipFile, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError, zlib.error)
_Count = Annotated[int, Field(ge=0)]


class ScopeRecord(Settings):
    """What a file has of one scope."""

    scope: str
    """Its name."""
    n_contexts: _Count
    """Contexts."""
    n_observations: _Count
    """Their observations."""
    n_parts: Annotated[int, Field(ge=0, le=1 << 20)]
    """Members of the archive that hold them."""
    sequences: dict[str, _Count]
    """Last sequence number by writer: which batches are in the sums."""


class _Index(Settings):
    format_version: Literal[1] = _FORMAT
    package_version: str
    created: str
    scopes: tuple[ScopeRecord, ...]


def export_statistics(log: StatisticsLog, scopes: Iterable[str], path: Path) -> tuple[ScopeRecord, ...]:
    """Write what a store has of scopes to a file, and return what is in it.

    Raises:
        StoreError: the store failed; the file is as it was before.
        RunError: the file cannot be written.
    """
    records: list[ScopeRecord] = []
    with replacing(path) as file, ZipFile(file, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for scope in scopes:
            records.append(_write_scope(archive, f"{len(records)}", log, scope))
        index = _Index(
            package_version=metadata.version("tts-orch"),
            created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            scopes=tuple(records),
        )
        archive.writestr(_INDEX, index.model_dump_json(indent=2))
    return index.scopes


def _write_scope(archive: ZipFile, name: str, log: StatisticsLog, scope: str) -> ScopeRecord:
    buckets, sequences = read_buckets(log, scope)
    n_parts = n_contexts = n_observations = 0
    for bucket in buckets:
        archive.writestr(f"{name}/{n_parts}", pack(bucket))
        n_parts += 1
        n_contexts += bucket.n_contexts
        n_observations += int(bucket.count.sum())
    return ScopeRecord(
        scope=scope,
        n_contexts=n_contexts,
        n_observations=n_observations,
        n_parts=n_parts,
        sequences=dict(sequences),
    )


class StatisticsFile:
    """A file of `export_statistics`, open for reading; what comes out of it was checked.

    Args:
        path: of the file.

    Attributes:
        path: of the file.
        records: what it has of each scope.
        digest: of its content; names it as a writer.

    Raises:
        ConfigError: it cannot be read, or is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.digest = hashlib.sha256(path.read_bytes()).hexdigest()[:32]
            self._archive = ZipFile(path)
            values = json.loads(self._archive.read(_INDEX))
            if values["format_version"] != _FORMAT:
                raise ConfigError(f"format_version is {values['format_version']}, not {_FORMAT}")
            self.records = _Index(**values).scopes
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}; {_AGAIN}") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}; {_AGAIN}") from None
        except _UNREADABLE:
            raise ConfigError(f"{path}: not a file of draft statistics; {_AGAIN}") from None

    def close(self) -> None:
        """Close the file."""
        self._archive.close()

    def parts(self, record: ScopeRecord) -> Iterator[bytes]:
        """Yield the packed contexts of a scope.

        Raises:
            ConfigError: they are damaged.
        """
        number = self.records.index(record)
        for part in range(record.n_parts):
            try:
                member = self._archive.getinfo(f"{number}/{part}")
                if member.file_size > _LARGEST_PART:
                    raise StoreError(f"a part of {member.file_size} bytes")
                blob = self._archive.read(member)
                unpack(blob)
            except (OSError, StoreError, *_UNREADABLE) as error:
                raise ConfigError(f"{self.path}: damaged, {record.scope}, part {part}: {error}; {_AGAIN}") from None
            yield blob


def import_scope(file: StatisticsFile, record: ScopeRecord, log: StatisticsLog) -> bool:
    """Add a scope of a file to a store, unless the store has some of these statistics already.

    Raises:
        ConfigError: the file is damaged; what was added before counts once however often this is done again.
        StoreError: the store failed; the same holds.

    Returns:
        Whether it was added.
    """
    _snapshot, end = read_all(log, record.scope)
    if record.sequences.keys() & end.sequences.keys():
        return False
    writer = f"file-{file.digest}"
    for part, blob in enumerate(file.parts(record)):
        log.append(record.scope, writer, part, blob)
    for origin, sequence in record.sequences.items():
        log.append(record.scope, origin, sequence, pack(ContextDelta.empty()))
    return True
