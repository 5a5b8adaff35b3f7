"""Files of target and trained drafters come to nodes that lack them, whole or not at all."""

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
from tts_orch.actors._remote import Remote
from tts_orch.actors.drafter_pool import DrafterLoader, DrafterPoolCore
from tts_orch.actors.engine_loading import EngineFactory
from tts_orch.actors.folder_shipping import FolderSourceCore, ShippedFolder, ship_folders
from tts_orch.actors.model_shipping import ShippingFactory, ship_models
from tts_orch.config import EngineConfig, MajorityVote, PlacementConfig
from tts_orch.errors import ConfigError, TargetError, WorkerLostError
from tts_orch.orchestrator import Orchestrator
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.policies.drafting.prompt_lookup import PromptLookup

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
        config = EngineConfig(target=str(model))
        yield away(asyncio.run(ship_models(config, engine_of, opened, ships_target=True, ships_drafters=True)))


def away(factory: EngineFactory, **changes: Any) -> ShippingFactory:
    """Change what the target's folder is, which is not here unless said otherwise."""
    assert isinstance(factory, ShippingFactory)
    assert isinstance(factory.target, ShippedFolder)
    return replace(factory, target=replace(factory.target, **{"folder": "/nowhere", **changes}))


def source_of(factory: ShippingFactory) -> Remote[FolderSourceCore]:
    assert factory.target
    return factory.target.source


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
    source_of(elsewhere).kill()
    assert arrived(elsewhere) == (folder, files)


def test_where_the_folder_is_the_same_nothing_is_sent(elsewhere: ShippingFactory, model: Path, cache: Path) -> None:
    source_of(elsewhere).kill()
    folder, _ = arrived(away(elsewhere, folder=str(model)))
    assert folder == model
    (model / "config.json").write_text("[]")
    with pytest.raises(WorkerLostError):
        arrived(away(elsewhere, folder=str(model)))


@pytest.mark.parametrize("size", [0, 5, 36 * 2**20])
def test_a_file_that_changed_on_the_way_is_refused(
    elsewhere: ShippingFactory, model: Path, cache: Path, size: int
) -> None:
    (model / "model.safetensors").write_bytes(bytes(size))
    with pytest.raises(TargetError, match=r"model\.safetensors: arrived damaged"):
        arrived(elsewhere)
    assert not shipped_folders(cache)


def test_without_the_drivers_machine_there_is_nothing_half_done(elsewhere: ShippingFactory, cache: Path) -> None:
    source_of(elsewhere).kill()
    with pytest.raises(WorkerLostError):
        arrived(elsewhere)
    assert not shipped_folders(cache)


def test_a_source_that_does_not_answer_is_a_lost_worker(elsewhere: ShippingFactory, cache: Path) -> None:
    class Silent:
        async def call(self, *arguments: Any) -> bytes:
            raise TimeoutError("no reply within 120 s")

    with pytest.raises(WorkerLostError, match=r"does not send the files of the target: no reply within 120 s"):
        arrived(away(elsewhere, source=Silent()))
    assert not shipped_folders(cache)


def test_a_piece_is_where_it_was_asked_for(model: Path) -> None:
    content = (model / "model.safetensors").read_bytes()
    source = FolderSourceCore({"the target": model})
    piece = source.read("the target", "model.safetensors", 1000)
    assert content[1000 : 1000 + len(piece)] == piece
    assert source.read("the target", "model.safetensors", len(content)) == b""


def test_drafters_come_to_where_they_are_loaded(model: Path, cache: Path) -> None:
    config = EngineConfig(target=str(model), drafters={"math": model, "code": model / "code"})

    def factory(**drafting: Any) -> EngineFactory:
        other = config.model_copy(update=drafting)
        return asyncio.run(ship_models(other, drafters_of, opened, ships_target=False, ships_drafters=True))

    with ExitStack() as opened:
        assert factory(drafter_placement="pooled") is drafters_of
        assert factory(drafters={}) is drafters_of
        sent = factory()
        assert isinstance(sent, ShippingFactory)
        assert sent(config, None).tokenizer == config.drafters
        elsewhere = {name: replace(folder, folder="/nowhere") for name, folder in sent.drafters.items()}
        there = replace(sent, drafters=elsewhere)(config, None).tokenizer
    assert [folder.parent for folder in there.values()] == [cache, cache]
    assert (there["math"] / "code" / "layers.py").read_text() == (there["code"] / "layers.py").read_text() == "pass"


def drafters_of(config: EngineConfig, log: Any) -> Any:
    """Say in place of the tokenizer where the drafters are."""
    return replace(toy_engine(config, log), tokenizer=config.drafters)


def test_a_pool_elsewhere_fetches_target_and_drafters(model: Path, cache: Path) -> None:
    read: list[Path] = []

    def make_loader(config: EngineConfig) -> DrafterLoader:
        read.append(Path(config.target))

        def load(folder: Path) -> Drafter:
            read.append(folder)
            return PromptLookup()

        return load

    with ExitStack() as opened:
        sent = asyncio.run(ship_folders({"the target": model, "drafter math": model / "code"}, opened))
        target, math = (replace(folder, folder="/nowhere") for folder in sent.values())
        pool = DrafterPoolCore(EngineConfig(target="/nowhere"), make_loader)
        assert list(pool.load({"math": math}, target)) == ["math"]
        pool.put("more", math)
    assert [folder.parent for folder in read] == [cache] * 3
    assert (read[0] / "config.json").is_file()
    assert (read[1] / "layers.py").read_text() == "pass"


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
