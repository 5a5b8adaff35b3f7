"""The Ray cluster that an orchestrator works on: one that is there already, or a small local one of its own."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import Final

import ray

from tts_orch.config import EngineConfig
from tts_orch.errors import ClusterError, ConfigError, first_line

__all__ = ["Cluster", "cpus_each"]

_OBJECT_STORE_BYTES: Final = 128 * 2**20  # tokens and settings only; Ray's smallest is 75 MiB


class Cluster:
    """A connection to Ray.

    Connects to `address`, to the cluster of RAY_ADDRESS, or uses the connection that the program has made already; without
    any of them it starts a local cluster, which `close` ends. Blocks for some seconds.

    Args:
        address: Ray address, None for the rules above.
        show_worker_logs: print what workers log.

    Raises:
        ClusterError: Ray cannot be reached or started.
    """

    def __init__(self, address: str | None = None, *, show_worker_logs: bool = False) -> None:
        self._is_ours = not ray.is_initialized()
        if not self._is_ours:
            return
        address = address or os.environ.get("RAY_ADDRESS")
        try:
            if address:
                ray.init(address, log_to_driver=show_worker_logs, logging_level=logging.WARNING)
            else:
                _start_local(show_worker_logs)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            place = f"the Ray cluster at {address!r} cannot be reached" if address else "a local Ray cannot be started"
            raise ClusterError(
                f"{place}: {first_line(error)}; see `ray status`, and RAY_AUTH_MODE if it asks for a token"
            ) from None

    def share_out(self, config: EngineConfig, n_workers: int) -> tuple[EngineConfig, Mapping[str, float]]:
        """Divide the cluster between verifiers.

        Returns:
            The settings of each, threads filled in, and the resources that it asks Ray for.

        Raises:
            ConfigError: there are not enough GPUs, or one is asked for by number.
        """
        n_gpus = ray.cluster_resources().get("GPU", 0)
        resources: dict[str, float] = {}
        if config.device.startswith("cuda") or (config.device == "auto" and n_gpus):
            _check_gpus(config.device, n_gpus, n_workers)
            resources["num_gpus"] = 1
        cpus = cpus_each([node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]], n_workers)
        threads = config.threads or max(1, math.floor(cpus))
        resources["num_cpus"] = min(cpus, threads)
        return config.model_copy(update={"threads": threads}), resources

    def close(self) -> None:
        """End what was started, or leave what was joined."""
        if self._is_ours and ray.is_initialized():
            ray.shutdown()


def cpus_each(node_cpus: Sequence[float], n_workers: int) -> float:
    """Return the largest whole number of CPUs that workers can have on these nodes, a fraction where none can have one."""
    for cpus in range(math.floor(max(node_cpus, default=0)), 0, -1):
        if sum(math.floor(node // cpus) for node in node_cpus) >= n_workers:
            return cpus
    return math.floor(100 * sum(node_cpus) / n_workers) / 100


def _check_gpus(device: str, n_gpus: float, n_workers: int) -> None:
    if ":" in device:
        raise ConfigError(
            f"device: Ray hands out the GPUs; give `cuda` instead of {device!r} and set CUDA_VISIBLE_DEVICES"
        )
    if n_gpus < n_workers:
        raise ConfigError(
            f"workers: {n_workers} need a GPU each, the cluster has {n_gpus:g}; lower workers or give the device `cpu`"
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
