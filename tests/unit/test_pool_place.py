"""Where a pool of drafters lives, and what is sent there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tts_orch.actors import pool_keeper, pool_place
from tts_orch.actors._cluster_nodes import Node
from tts_orch.actors.drafter_pool import DrafterPoolCore
from tts_orch.actors.pool_keeper import PoolKeeper
from tts_orch.actors.pool_place import PoolPlace, place_of_pool
from tts_orch.config import EngineConfig
from tts_orch.placement_config import PlacementConfig


def node(gpus: float) -> Node:
    total = {"CPU": 8.0, **({"GPU": gpus} if gpus else {})}
    return Node(f"{gpus}", total, total)


@pytest.mark.parametrize(
    ("gpus", "n_verifiers", "share", "device", "is_on_gpu", "warns"),
    [
        ([0, 2], 1, 1.0, "auto", True, False),  # a head without GPU, workers with
        ([0, 1, 1], 1, 1.0, "cuda", True, False),
        ([0, 2], 2, 1.0, "auto", False, True),
        ([0, 1, 1], 3, 0.5, "auto", True, False),
        ([0.5, 0.5], 1, 1.0, "auto", False, False),  # no node has a whole one
        ([0, 2], 1, 1.0, "cpu", False, False),
        ([0, 0], 1, 1.0, "auto", False, False),
    ],
)
def test_a_pool_gets_a_gpu_that_is_to_spare_else_cpus_of_the_drivers_node(
    gpus: list[float],
    n_verifiers: int,
    share: float,
    device: str,
    is_on_gpu: bool,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(pool_place, "read_nodes", lambda: [node(n) for n in gpus])
    placement = PlacementConfig(gpus_per_worker=share, ship_target=True)
    with caplog.at_level(logging.WARNING):
        place = place_of_pool(EngineConfig(target="toy", device=device), n_verifiers, placement)
    assert place.config.numerics == "fast"
    assert ("the pool of drafters computes on CPUs" in caplog.text) == warns
    if is_on_gpu:
        assert place.resources == {"num_cpus": 0, "num_gpus": share}
        assert (place.is_beside_driver, place.ships_target, place.config.device) == (False, True, device)
    else:
        assert place.resources == {"num_cpus": 0}
        assert (place.is_beside_driver, place.ships_target, place.config.device) == (True, False, "cpu")


class FakeActor:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []

    async def load(self, deadline_s: float, failure: str, method: Any, *arguments: Any) -> Any:
        return await self.call(deadline_s, method, *arguments)

    async def call(self, deadline_s: float, method: Any, *arguments: Any) -> Any:
        self.asked.append((method, *deepcopy(arguments)))
        return {}

    def kill(self) -> None:
        """Nothing lives."""


@dataclass(frozen=True)
class FakeClass:
    """Stands for `DrafterPool`."""

    actor: FakeActor
    is_beside_driver: bool = True

    def named(self, name: str) -> FakeClass:
        return self

    async def create(self, deadline_s: float, resources: Mapping[str, float], *arguments: Any) -> FakeActor:
        self.actor.asked.append((self.is_beside_driver, resources))
        return self.actor


@pytest.mark.parametrize("is_beside_driver", [True, False])
def test_a_pool_elsewhere_is_sent_its_drafters_and_the_target(
    is_beside_driver: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ship(folders: Mapping[str, Path], opened: ExitStack) -> dict[str, tuple[str, Path]]:
        return {what: ("sent", folder) for what, folder in folders.items()}

    actor = FakeActor()
    monkeypatch.setattr(pool_keeper, "DrafterPool", FakeClass(actor))
    monkeypatch.setattr(pool_keeper, "ship_folders", ship)
    target, math = tmp_path / "target", tmp_path / "math"
    for folder in (target, math):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    config = EngineConfig(target=str(target), drafter="neural", drafters={"math": math})
    place = PoolPlace(config, {"num_cpus": 0}, is_beside_driver, ships_target=not is_beside_driver)

    async def use() -> None:
        keeper = PoolKeeper(place, lambda config: pytest.fail("loads nothing here"))
        await keeper.start()
        await keeper.put("more", math)
        assert keeper.folders == {"math": math, "more": math}
        await keeper.close()

    asyncio.run(use())
    its_math = math if is_beside_driver else ("sent", math)
    assert actor.asked == [
        (is_beside_driver, {"num_cpus": 0}),
        (DrafterPoolCore.load, {"math": its_math}, None if is_beside_driver else ("sent", target)),
        (DrafterPoolCore.place,),
        (DrafterPoolCore.put, "more", its_math),
    ]
