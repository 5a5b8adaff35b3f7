"""Who is told of changed drafters, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tts_orch.actors import live_drafters
from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors.live_drafters import LiveDrafters
from tts_orch.config import EngineConfig
from tts_orch.drafters.pool_messages import MemberFacts
from tts_orch.errors import ConfigError


class FakeVerifier:
    """Notes what it is told; may do something the first time."""

    def __init__(self, when_told: Any = lambda: None) -> None:
        self.told: list[str] = []
        self._when_told = when_told

    async def change_drafter(self, change: DrafterChange) -> None:
        await asyncio.sleep(0)
        self.told.append(f"{change.name} {'comes' if change.folder else 'goes'}")
        if len(self.told) == 1:
            self._when_told()


@pytest.fixture
def drafters(monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveDrafters]:
    async def ship(folders: dict[str, Path], opened: ExitStack) -> dict[str, Any]:
        return {what: str(folder) for what, folder in folders.items()}

    monkeypatch.setattr(live_drafters, "ship_folders", ship)
    loop = EventLoopThread()
    with ExitStack() as opened:
        yield LiveDrafters(EngineConfig(target="toy"), loop, 1, 1.0, opened)
    loop.close()


def started(drafters: LiveDrafters, verifier: FakeVerifier) -> FakeVerifier:
    """Return a verifier that has started just now."""

    async def start(placed: asyncio.Event, n_out_of_memory: int) -> Any:
        return verifier

    return drafters._loop.run(drafters.kept_up_to_date(start)(asyncio.Event(), 0))  # type: ignore[return-value, arg-type]


def test_verifiers_are_told_as_they_work_and_as_they_start(drafters: LiveDrafters, tmp_path: Path) -> None:
    at_work = FakeVerifier()
    drafters.follow(at_work.change_drafter)
    drafters.add("math", tmp_path)
    drafters.add("chat", str(tmp_path))
    drafters.remove("chat")
    assert drafters.names == ("stand", "math")
    assert at_work.told == ["math comes", "chat comes", "chat goes"]
    assert started(drafters, FakeVerifier()).told == ["math comes", "chat goes"]


def test_what_changes_while_a_verifier_is_told_it_is_told_too(drafters: LiveDrafters, tmp_path: Path) -> None:
    drafters.add("math", tmp_path)
    late = DrafterChange("late")
    verifier = FakeVerifier(lambda: drafters._changes.update(late=late))
    assert started(drafters, verifier).told == ["math comes", "late goes"]


def test_a_change_that_is_refused_has_not_been(drafters: LiveDrafters, tmp_path: Path) -> None:
    async def refuse(change: DrafterChange) -> None:
        raise ConfigError("drafters: the new one reads hidden states")

    drafters.follow(refuse)
    with pytest.raises(ConfigError, match="reads hidden states"):
        drafters.add("math", tmp_path)
    assert drafters.names == ("stand",)
    assert started(drafters, FakeVerifier()).told == []


class FakeKeeper:
    """Knows which drafters a pool has."""

    def __init__(self, **folders: Path) -> None:
        self.folders = folders

    async def put(self, name: str, folder: Path) -> MemberFacts:
        self.folders[name] = folder
        return MemberFacts(np.zeros(1), ())

    async def remove(self, name: str) -> None:
        del self.folders[name]

    async def close(self) -> None:
        pass


def test_a_pool_takes_back_what_is_refused(drafters: LiveDrafters, tmp_path: Path) -> None:
    async def refuse(change: DrafterChange) -> None:
        raise ConfigError("drafters: the new one reads hidden states")

    keeper = FakeKeeper(math=tmp_path / "old")
    drafters._keeper, drafters._trained = keeper, {"math"}  # type: ignore[assignment]
    drafters.follow(refuse)
    with pytest.raises(ConfigError, match="reads hidden states"):
        drafters.replace("math", tmp_path)
    with pytest.raises(ConfigError, match="reads hidden states"):
        drafters.add("chat", tmp_path)
    assert keeper.folders == {"math": tmp_path / "old"}


@pytest.mark.parametrize("name", ["stand", "neural", "no name"])
def test_names_are_free_and_well_formed(drafters: LiveDrafters, name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^drafters: "):
        drafters.add(name, tmp_path)
    with pytest.raises(ConfigError, match=r"^drafters: there is no trained drafter"):
        drafters.replace(name, tmp_path)
