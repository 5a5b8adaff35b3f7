"""How many verifiers there are, and what each of them asks the cluster for: numbers without a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import ray

from tts_orch.actors import cluster
from tts_orch.actors._cluster_nodes import Node, Survey
from tts_orch.actors._staffing import Staffing
from tts_orch.actors.cluster import Cluster, shares_of
from tts_orch.config import EngineConfig, PlacementConfig
from tts_orch.errors import ClusterError, ConfigError


def test_staffing_asks_for_what_is_wanted_or_what_there_is_room_for() -> None:
    wanted, elastic = Staffing(3), Staffing(None)
    for staffing in (wanted, elastic):
        staffing.heed(Survey(frozenset("n"), frozenset(), 2))
    assert [wanted.n_to_start(n, 0) for n in range(5)] == [3, 2, 1, 0, 0]
    assert wanted.n_to_start(1, 1) == 1
    assert [elastic.n_to_start(4, starting) for starting in range(4)] == [2, 1, 0, 0]
    elastic.note_no_place()
    assert (elastic.n_to_start(0, 0), elastic.n_to_start(1, 0), elastic.n_to_start(0, 1)) == (1, 0, 0)
    elastic.note_loss(was_useful=True)
    assert elastic.n_to_start(1, 0) == 1


def node(cpus: float = 0, gpus: float = 0, free_cpus: float | None = None, *, is_leaving: bool = False) -> Node:
    total = {name: amount for name, amount in (("CPU", cpus), ("GPU", gpus)) if amount}
    return Node("n", total, total if free_cpus is None else {**total, "CPU": free_cpus}, is_leaving)


def shared(nodes: Sequence[Node], workers: int | None = None, device: str = "auto", **placement: float) -> tuple:
    config = EngineConfig(target="toy", device=device)
    shares = shares_of(nodes, config, workers, PlacementConfig(**placement))
    return shares.resources, shares.config.threads


@pytest.mark.parametrize(
    ("nodes", "workers", "device", "placement", "expected"),
    [
        ([node(8), node(4), node(0)], None, "auto", {}, ({"num_cpus": 4}, 4)),  # one to the smallest node
        ([node(8), node(4)], 3, "auto", {}, ({"num_cpus": 4}, 4)),  # what lets all of them fit
        ([node(2)], 3, "auto", {}, ({"num_cpus": 0.66}, 1)),
        ([node(2)], 3, "auto", {"cpus_per_worker": 2}, ({"num_cpus": 2}, 2)),  # the others wait for nodes
        ([node(64), node(16, gpus=4)], None, "auto", {}, ({"num_gpus": 1, "num_cpus": 1}, 4)),
        ([node(64), node(16, gpus=4)], 8, "auto", {"gpus_per_worker": 0.5}, ({"num_gpus": 0.5, "num_cpus": 1}, 2)),
        ([node(64), node(16, gpus=4)], None, "cpu", {}, ({"num_cpus": 16}, 16)),
        ([node(4)], None, "cuda", {}, ({"num_gpus": 1, "num_cpus": 1}, 1)),  # GPUs may come
        ([node(4, gpus=1)], 1, "cuda", {"cpus_per_worker": 3}, ({"num_gpus": 1, "num_cpus": 3}, 3)),
    ],
)
def test_shares_of_a_cluster(
    nodes: list[Node], workers: int | None, device: str, placement: dict[str, float], expected: tuple
) -> None:
    assert shared(nodes, workers, device, **placement) == expected


def test_a_gpu_is_not_asked_for_by_number() -> None:
    with pytest.raises(ConfigError, match="cuda:1"):
        shared([node(4, gpus=2)], device="cuda:1")


def test_places_are_counted_by_the_scarcest_resource() -> None:
    assert node(8).n_places({"num_cpus": 0.66}) == 12
    assert node(8, gpus=2).n_places({"num_cpus": 1, "num_gpus": 0.5}) == 4
    assert node(8, gpus=2, free_cpus=1).n_places({"num_cpus": 1, "num_gpus": 0.5}) == 1
    assert node(8).n_places({"num_gpus": 1}) == 0
    assert node(8, is_leaving=True).n_places({"num_cpus": 1}) == 0
    assert node(0.3).n_places({"num_cpus": 0.1}) == 3  # as Ray counts, in ten thousandths


@pytest.fixture
def _one_node_without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda *arguments, **options: None)
    monkeypatch.setattr(cluster, "read_nodes", lambda: [node(4)])


@pytest.mark.usefixtures("_one_node_without_gpu")
@pytest.mark.parametrize("in_job", [False, True])
def test_a_cluster_that_is_joined_may_get_its_gpus_later(in_job: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if in_job:
        monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    joined, config = Cluster(None if in_job else "10.0.0.1:6379"), EngineConfig(target="toy", device="cuda")
    shares = [joined.share_out(config, workers, PlacementConfig()) for workers in (4, None)]
    assert [(each.resources["num_gpus"], each.at_most) for each in shares] == [(1, 4), (1, None)]


@pytest.mark.usefixtures("_one_node_without_gpu")
def test_a_machine_of_ones_own_has_what_it_has() -> None:
    own, on_cpus = Cluster(), EngineConfig(target="toy", device="cpu")
    assert own.share_out(on_cpus, None, PlacementConfig()).at_most == 1
    with pytest.raises(ConfigError, match=r"4 need 4 GPUs, this machine has 0"):
        own.share_out(EngineConfig(target="toy", device="cuda"), 4, PlacementConfig())


@pytest.mark.usefixtures("_one_node_without_gpu")
@pytest.mark.parametrize(
    ("address", "said"), [(None, "a local Ray cannot be started"), ("h:1", "'h:1' cannot be reached")]
)
def test_whatever_ray_raises_at_its_start_is_a_line(
    address: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(*_arguments: object, **_options: object) -> None:
        raise Exception("The node timed out.\nThis could happen")  # as bare as Ray's own

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "77")
    with pytest.raises(ClusterError, match=f"{said}: The node timed out") as caught:
        Cluster(address)
    assert "\n" not in str(caught.value)
    assert ("gives up after 77 s, on a busy machine set RAY_raylet_start_wait_time_s" in str(caught.value)) != bool(
        address
    )
