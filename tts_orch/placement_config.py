"""Settings of the place that each verifier gets in the cluster: changes the speed, never a token."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from tts_orch.settings import Settings

__all__ = ["ANYWHERE", "PlacementConfig"]


class PlacementConfig(Settings):
    """The place that each target verifier gets in the cluster, and how the target model comes there."""

    cpus_per_worker: float | None = Field(None, ge=0)
    """CPUs that each worker asks Ray for. If not given, on GPUs one; else those of the smallest node where `workers` is not
    given, or so many that all workers fit."""
    gpus_per_worker: float = Field(1.0, gt=0, le=1)
    """Share of a GPU that each worker asks Ray for, where it runs on one; Ray counts the shares and does not divide the
    memory, so see that weights and kv_memory_gib fit several times."""
    place_within_s: float = Field(120.0, gt=0)
    """Seconds that the first worker may wait for a place; more where an autoscaler must start a machine for it."""
    ship_target: bool = False
    """Send the target, a folder or a GGUF file of this machine, into the cache of each node that lacks it, checked by hash;
    else it must be a hub id, or a path that each node has."""


ANYWHERE: Final = PlacementConfig()
