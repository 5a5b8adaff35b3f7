"""Statistics in files: what comes out is what went in, once, whatever is done with the file in between."""

from __future__ import annotations

import json
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.store.deltas import contents, random_delta
from tts_orch.errors import ConfigError, RunError, StoreError
from tts_orch.policies.drafting.context_delta import coalesce
from tts_orch.store.folding import fold, read_all
from tts_orch.store.memory import MemoryStore
from tts_orch.store.statistics_file import StatisticsFile, export_statistics, import_scope
from tts_orch.store.wire import pack, unpack_all


@pytest.fixture
def yesterday() -> MemoryStore:
    """A store with two scopes: one folded in part, one whose log is as it was sent."""
    store = MemoryStore(first_id=0, fold_bytes=4000)
    for sequence in range(12):
        store.append("long", f"writer-{sequence % 2}", sequence, pack(random_delta(sequence)))
    store.append("short", "writer-0", 0, pack(random_delta(99)))
    assert store.snapshot("long").blobs
    assert not store.snapshot("short").blobs
    return store


@pytest.fixture
def path(yesterday: MemoryStore, tmp_path: Path) -> Path:
    path = tmp_path / "statistics.zip"
    export_statistics(yesterday, ["long", "short"], path)
    return path


def everything(store: MemoryStore, scope: str) -> dict[int, Any]:
    snapshot, end = read_all(store, scope)
    return contents(coalesce(list(fold(snapshot.blobs, unpack_all(end.blobs)[0]))))


def import_all(path: Path, store: MemoryStore) -> list[bool]:
    with closing(StatisticsFile(path)) as file:
        return [import_scope(file, record, store) for record in file.records]


def test_another_store_knows_the_same(yesterday: MemoryStore, path: Path) -> None:
    with closing(StatisticsFile(path)) as file:
        long, short = file.records
        parts = coalesce([unpack_all([part])[0] for part in file.parts(long)])
    assert contents(parts) == contents(coalesce([random_delta(i) for i in range(12)]))
    assert (long.n_contexts, long.n_observations) == (parts.n_contexts, parts.count.sum())
    assert (long.sequences, short.scope) == ({"writer-0": 10, "writer-1": 11}, "short")
    today = MemoryStore(first_id=0)
    assert import_all(path, today) == [True, True]
    for scope in ("long", "short"):
        assert everything(today, scope) == everything(yesterday, scope)


def test_nothing_counts_twice(yesterday: MemoryStore, path: Path, tmp_path: Path) -> None:
    today = MemoryStore(first_id=0)
    import_all(path, today)
    assert import_all(path, today) == [False, False]
    assert import_all(path, yesterday) == [False, False]  # where they come from
    export_statistics(today, ["long", "short"], again := tmp_path / "again.zip")
    assert import_all(again, yesterday) == [False, False]
    today.append("long", "writer-1", 11, pack(random_delta(11)))  # a late writer of yesterday
    assert everything(today, "long") == everything(yesterday, "long")


def test_import_that_was_cut_short_is_finished_by_another(path: Path) -> None:
    class Failing(MemoryStore):
        n_left = 1

        def append(self, scope: str, writer: str, sequence: int, blob: bytes, previous: int = -1) -> int:
            if not self.n_left:
                raise StoreError("away")
            self.n_left -= 1
            return super().append(scope, writer, sequence, blob, previous)

    today, expected = Failing(first_id=0), MemoryStore(first_id=0)
    with pytest.raises(StoreError, match="away"):
        import_all(path, today)
    today.n_left = 100
    import_all(path, today)
    import_all(path, expected)
    assert everything(today, "long") == everything(expected, "long")
    assert everything(today, "short") == everything(expected, "short")


def test_failed_export_leaves_the_old_file(path: Path) -> None:
    class Away(MemoryStore):
        def read(self, scope: str, after_id: int) -> Any:
            raise StoreError("away")

    before = path.read_bytes()
    with pytest.raises(StoreError, match="away"):
        export_statistics(Away(), ["long"], path)
    assert path.read_bytes() == before
    with pytest.raises(RunError, match="nowhere"):
        export_statistics(MemoryStore(), [], path.parent / "nowhere" / "file")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 and no more"])
def test_other_files_are_refused_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(
        ConfigError, match=r"other: not a file of draft statistics; give a file of `tts-orch store export`"
    ):
        StatisticsFile(path)
    with pytest.raises(ConfigError, match=r"nowhere: No such file"):
        StatisticsFile(tmp_path / "nowhere")


def test_index_is_checked(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        index = json.loads(archive.read("index.json"))
    for change, message in [
        ({"format_version": 2}, "format_version is 2, not 1"),
        ({"scopes": [{"scope": "x"}]}, "n_contexts: missing"),
        ({"scopes": 5}, "scopes: input should be"),
    ]:
        other = tmp_path / "other.zip"
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr("index.json", json.dumps({**index, **change}))
        with pytest.raises(ConfigError, match=message):
            StatisticsFile(other)


@pytest.mark.parametrize("part", [b"", b"TTSD", pack(random_delta(0)) + b"\0"])
def test_damaged_parts_never_reach_a_store(path: Path, tmp_path: Path, part: bytes) -> None:
    other, today = tmp_path / "other.zip", MemoryStore(first_id=0)
    with zipfile.ZipFile(path) as good, zipfile.ZipFile(other, "w") as bad:
        bad.writestr("index.json", good.read("index.json"))
        bad.writestr("0/0", part)
    with pytest.raises(ConfigError, match=r"other.zip: damaged, long, part 0: "):
        import_all(other, today)
    assert today.statistics().entries == 0


def test_flipped_bits_are_noticed(path: Path) -> None:
    blob = bytearray(path.read_bytes())
    blob[200] ^= 0x10
    path.write_bytes(blob)
    with pytest.raises(ConfigError, match=r"damaged|not a file"):
        import_all(path, MemoryStore(first_id=0))
