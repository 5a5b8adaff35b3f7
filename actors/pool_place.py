"""Where a pool of drafters lives: on a GPU of the cluster where one is to spare, else on CPUs of the driver's node."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from tts_orch.actors._cluster_nodes import read_nodes
from tts_orch.config import EngineConfig
from tts_orch.placement_config import PlacementConfig

__all__ = ["PoolPlace", "place_of_pool"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolPlace:
    """A place for a pool.

    Attributes:
        config: settings of the target and of drafting there; `drafters` are those to begin with.
        resources: what the pool asks Ray for.
        is_beside_driver: whether it is on the driver's node; elsewhere the drafters' folders are sent to it,
        ships_target: and the target too.
    """

    config: EngineConfig
    resources: Mapping[str, float]
    is_beside_driver: bool = True
    ships_target: bool = False


def place_of_pool(config: EngineConfig, n_verifiers: int, placement: PlacementConfig) -> PoolPlace:
    """Return a pool's place.

    CPUs it shares with the verifiers, which wait for it or have GPUs. What it computes need not be bit-stable: drafts change
    no token.

    Args:
        config: settings of a verifier.
        n_verifiers: that must find their places, too.
        placement: what the user says of their places.
    """
    config = config.model_copy(update={"numerics": "fast"})
    on_gpu = {"num_cpus": 0.0, "num_gpus": placement.gpus_per_worker}
    n_places = sum(node.n_places(on_gpu, node.total) for node in read_nodes()) if config.device != "cpu" else 0
    if n_places > n_verifiers:
        return PoolPlace(config, on_gpu, is_beside_driver=False, ships_target=placement.ship_target)
    if n_places:
        logger.warning(
            "drafter_placement: the workers want all GPUs, so the pool of drafters computes on CPUs of the driver's node; leave "
            "it a GPU by fewer workers, or give `colocated`"
        )
    return PoolPlace(config.model_copy(update={"device": "cpu"}), {"num_cpus": 0})
