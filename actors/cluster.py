"""The Ray cluster that an orchestrator works on: one that is there already, or a small local one of its own."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import ray

from tts_orch.actors._cluster_nodes import Node, read_nodes
from tts_orch.config import EngineConfig
from tts_orch.errors import ClusterError, ConfigError, first_line
from tts_orch.placement_config import PlacementConfig

__all__ = ["Cluster", "Shares", "cpus_each", "shares_of"]

_START_WAIT: Final = "RAY_raylet_start_wait_time_s"  # Ray's own variable
_OBJECT_STORE_BYTES: Final = 128 * 2**20  # tokens and settings only; Ray's smallest is 75 MiB


@dataclass(frozen=True, slots=True)
class Shares:
    """How a cluster is divided between verifiers.

    Attributes:
        config: settings of each verifier, threads filled in.
        resources: what each asks Ray for.
        n_workers: how many there shall be, None for as many as there is room for, now and later.
        at_most: how many there can ever be, None if the cluster may grow.
    """

    config: EngineConfig
    resources: Mapping[str, float]
    n_workers: int | None
    at_most: int | None

    @property
    def n_places_on_gpu(self) -> int:
        """Verifiers that one GPU has room for, 0 where they run on CPUs."""
        share = self.resources.get("num_gpus", 0)
        return math.ceil(1 / share) if share else 0


class Cluster:
    """A connection to Ray.

    Connects to `address`, to the cluster of RAY_ADDRESS, or uses the connection that the program has made already; without
    any of them it starts a local cluster, which `close` ends. Blocks for some seconds.

    Args:
        address: Ray address, None for the rules above.
        show_worker_logs: print what workers log.

    Attributes:
        can_grow: whether other nodes than this machine may be there, now or later.

    Raises:
        ClusterError: Ray cannot be reached or started.
    """

    def __init__(self, address: str | None = None, *, show_worker_logs: bool = False) -> None:
        address = address or os.environ.get("RAY_ADDRESS")
        self._is_our_connection = not ray.is_initialized()
        self.can_grow = not self._is_our_connection or bool(address)
        if not self._is_our_connection:
            return
        try:
            if address:
                ray.init(address, log_to_driver=show_worker_logs, logging_level=logging.WARNING)
            else:
                _start_local(show_worker_logs)
        except Exception as error:  # Ray raises what it likes, a bare Exception where a node starts too slowly
            raise ClusterError(_unreachable(address, error)) from None

    def share_out(self, config: EngineConfig, workers: int | None, placement: PlacementConfig) -> Shares:
        """Divide the cluster between verifiers.

        Args:
            config: settings of a verifier.
            workers: how many there shall be, None for one a GPU or node.
            placement: what the user says of their places.

        Raises:
            ConfigError: a GPU is asked for by number, or a cluster that cannot grow has not enough of them.
        """
        nodes = read_nodes()
        shares = shares_of(nodes, config, workers, placement)
        if self.can_grow:
            return shares
        if shares.resources.get("num_gpus"):
            _check_gpus(nodes, shares)
        n_places = sum(node.n_places(shares.resources, node.total) for node in nodes)
        return replace(shares, at_most=workers or max(n_places, 1))

    def close(self) -> None:
        """End what was started, or leave what was joined."""
        if self._is_our_connection and ray.is_initialized():
            ray.shutdown()


def shares_of(nodes: Sequence[Node], config: EngineConfig, workers: int | None, placement: PlacementConfig) -> Shares:
    """Divide nodes between verifiers: one a GPU where they run on GPUs, else by CPUs.

    Raises:
        ConfigError: a GPU is asked for by number.
    """
    if ":" in config.device:
        raise ConfigError(
            f"device: Ray hands out the GPUs; give `cuda` instead of {config.device!r} and set CUDA_VISIBLE_DEVICES"
        )
    gpu_nodes = [node for node in nodes if node.total.get("GPU")]
    if config.device == "cuda" or (config.device == "auto" and gpu_nodes):
        cpus = _cpus_beside_gpu(gpu_nodes, placement)
        asked = 1.0 if placement.cpus_per_worker is None else cpus  # the GPU is what finds them a place
        resources = {"num_gpus": placement.gpus_per_worker, "num_cpus": asked}
    else:
        cpus = _cpus_of(nodes, workers, placement)
        is_bounded = workers is not None and placement.cpus_per_worker is None
        resources = {"num_cpus": min(cpus, config.threads or cpus) if is_bounded else cpus}
    threads = config.threads or max(1, math.floor(cpus))
    return Shares(config.model_copy(update={"threads": threads}), resources, workers, at_most=workers)


def cpus_each(node_cpus: Sequence[float], n_workers: int) -> float:
    """Return the largest whole number of CPUs that workers can have on these nodes, a fraction where none can have one."""
    for cpus in range(math.floor(max(node_cpus, default=0)), 0, -1):
        if sum(math.floor(node // cpus) for node in node_cpus) >= n_workers:
            return cpus
    return math.floor(100 * sum(node_cpus) / n_workers) / 100


def _cpus_of(nodes: Sequence[Node], workers: int | None, placement: PlacementConfig) -> float:
    if placement.cpus_per_worker is not None:
        return placement.cpus_per_worker
    node_cpus = [node.total.get("CPU", 0) for node in nodes]
    if workers is not None:
        return cpus_each(node_cpus, workers)
    return min((math.floor(cpus) for cpus in node_cpus if cpus >= 1), default=1)


def _cpus_beside_gpu(gpu_nodes: Sequence[Node], placement: PlacementConfig) -> float:
    """Return the CPUs that belong to each verifier's share of a GPU, on the node that has the fewest."""
    if placement.cpus_per_worker is not None:
        return placement.cpus_per_worker
    share = placement.gpus_per_worker
    return min((node.total.get("CPU", 0) * share / node.total["GPU"] for node in gpu_nodes), default=1.0)


def _check_gpus(nodes: Sequence[Node], shares: Shares) -> None:
    have, want = sum(node.total.get("GPU", 0) for node in nodes), shares.resources["num_gpus"] * (shares.n_workers or 1)
    if have < want:
        raise ConfigError(
            f"workers: {shares.n_workers or 1} need {want:g} GPUs, this machine has {have:g}; lower workers, or give the "
            "device `cpu`"
        )


def _unreachable(address: str | None, error: Exception) -> str:
    if not address:
        return (
            f"a local Ray cannot be started: {first_line(error)}; it gives up after {os.environ.get(_START_WAIT, '30')} s, on a "
            f"busy machine set {_START_WAIT} to more"
        )
    return (
        f"the Ray cluster at {address!r} cannot be reached: {first_line(error)}; see `ray status`, and RAY_AUTH_MODE if it "
        "asks for a token"
    )


def _start_local(show_worker_logs: bool) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # RAY_AUTH_MODE is not touched: Ray read it when it was imported, and gives a new local cluster a token by itself.
    ray.init(
        address="local",
        num_cpus=len(os.sched_getaffinity(0)),
        object_store_memory=_OBJECT_STORE_BYTES,
        include_dashboard=False,
        log_to_driver=show_worker_logs,
        logging_level=logging.ERROR,  # below it are remarks on the token
    )
