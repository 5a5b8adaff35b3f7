"""The target's files come to nodes that lack them, whole or not at all."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.toys_decoder import toy_engine
from tts_orch.actors.target_shipping import ShippingFactory, TargetSourceCore, ship_target
from tts_orch.config import EngineConfig, MajorityVote, PlacementConfig
from tts_orch.errors import ConfigError, TargetError, WorkerLostError
from tts_orch.orchestrator import Orchestrator

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("ray_session")]


def engine_of(config: EngineConfig, log: Any) -> Any:
    """Say in place of the tokenizer where the files were, and what is in them."""
    folder = Path(config.target)
    files = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    return replace(toy_engine(config, log), tokenizer=(folder, files))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "code").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "empty.txt").touch()
    (folder / "code" / "layers.py").write_text("pass")
    (folder / ".git" / "notes").write_text("of no use")
    (folder / "model.safetensors").write_bytes(os.urandom(36 * 2**20))  # three pieces
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTS_ORCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def elsewhere(model: Path, cache: Path) -> Iterator[ShippingFactory]:
    """Return what a worker gets whose machine does not have the folder."""
    with ExitStack() as opened:
        factory = asyncio.run(ship_target(str(model), engine_of, opened))
        yield replace(factory, folder="/nowhere")


def arrived(factory: ShippingFactory) -> tuple[Path, dict[str, bytes]]:
    folder, files = factory(EngineConfig(target="any"), None).tokenizer
    return folder, files


def shipped_folders(cache: Path) -> list[Path]:
    return [path for path in cache.iterdir() if path.is_dir() and path.name.startswith((".building", "shipped"))]


def test_a_node_fetches_the_files_once(elsewhere: ShippingFactory, model: Path, cache: Path) -> None:
    folder, files = arrived(elsewhere)
    assert folder.parent == cache
    assert files.keys() == {"config.json", "empty.txt", "code/layers.py", "model.safetensors"}
    assert all(content == (model / name).read_bytes() for name, content in files.items())
    elsewhere.source.kill()
    assert arrived(elsewhere) == (folder, files)


def test_where_the_folder_is_the_same_nothing_is_sent(elsewhere: ShippingFactory, model: Path, cache: Path) -> None:
    elsewhere.source.kill()
    folder, _ = arrived(replace(elsewhere, folder=str(model)))
    assert folder == model
    (model / "config.json").write_text("[]")
    with pytest.raises(WorkerLostError):
        arrived(replace(elsewhere, folder=str(model)))


@pytest.mark.parametrize("size", [0, 5, 36 * 2**20])
def test_a_file_that_changed_on_the_way_is_refused(
    elsewhere: ShippingFactory, model: Path, cache: Path, size: int
) -> None:
    (model / "model.safetensors").write_bytes(bytes(size))
    with pytest.raises(TargetError, match=r"model\.safetensors: arrived damaged"):
        arrived(elsewhere)
    assert not shipped_folders(cache)


def test_without_the_drivers_machine_there_is_nothing_half_done(elsewhere: ShippingFactory, cache: Path) -> None:
    elsewhere.source.kill()
    with pytest.raises(WorkerLostError):
        arrived(elsewhere)
    assert not shipped_folders(cache)


def test_a_source_that_does_not_answer_is_a_lost_worker(elsewhere: ShippingFactory, cache: Path) -> None:
    class Silent:
        async def call(self, *arguments: Any) -> bytes:
            raise TimeoutError("no reply within 120 s")

    with pytest.raises(WorkerLostError, match=r"does not send the target's files: no reply within 120 s"):
        arrived(replace(elsewhere, source=Silent()))
    assert not shipped_folders(cache)


def test_a_piece_is_where_it_was_asked_for(model: Path) -> None:
    content = (model / "model.safetensors").read_bytes()
    source = TargetSourceCore(str(model))
    piece = source.read("model.safetensors", 1000)
    assert content[1000 : 1000 + len(piece)] == piece
    assert source.read("model.safetensors", len(content)) == b""


def test_an_orchestrator_ships_its_target(model: Path, cache: Path) -> None:
    ships = PlacementConfig(ship_target=True)
    with Orchestrator(str(model), placement=ships, workers=1, make_engine=engine_with_files) as session:
        assert session.search("seven", MajorityVote(n=1)).candidates
    with pytest.raises(ConfigError, match=r"^ship_target: some/model is a hub id"):
        Orchestrator("some/model", placement=ships, make_engine=toy_engine)
    with pytest.raises(TargetError, match="there is no model here"):
        Orchestrator(str(model / "absent"), placement=ships, make_engine=toy_engine)


def engine_with_files(config: EngineConfig, log: Any) -> Any:
    if not (Path(config.target) / "model.safetensors").is_file():
        raise TargetError(f"{config.target}: no weights")
    return toy_engine(config, log)
