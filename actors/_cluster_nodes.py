"""The nodes of the cluster as Ray sees them just now: what they have, what is free, which are about to leave."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass

import ray
from ray._private.state import available_resources_per_node, state  # Ray has no public names for these two

__all__ = ["Node", "Survey", "Surveyor", "current_node", "explain_pending", "read_nodes"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is alive.

    Attributes:
        id: Ray's.
        total: amount of each resource, by Ray's name of it.
        free: what nobody has asked for.
        is_leaving: whether it is being drained; nothing is placed there any more.
    """

    id: str
    total: Mapping[str, float]
    free: Mapping[str, float]
    is_leaving: bool = False

    def n_places(self, resources: Mapping[str, float], within: Mapping[str, float] | None = None) -> int:
        """Return how many actors find room.

        Args:
            resources: what each asks for.
            within: what they may have, what is free if not given.
        """
        have = self.free if within is None else within
        wanted = {_name_of(option): amount for option, amount in resources.items() if amount}
        if self.is_leaving or not wanted:
            return 0
        return min(math.floor(have.get(name, 0) / amount + 1e-9) for name, amount in wanted.items())


@dataclass(frozen=True, slots=True)
class Survey:
    """What a controller wants to know of the cluster from time to time.

    Attributes:
        nodes: ids of the nodes that are alive.
        leaving: ids of those that are being drained.
        n_free_places: verifiers that would find room now.
    """

    nodes: frozenset[str]
    leaving: frozenset[str]
    n_free_places: int


def current_node() -> str:
    """Return the id of the node that this process belongs to, empty without a cluster."""
    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""


def read_nodes() -> list[Node]:
    """Return the nodes that are alive; blocks for some milliseconds."""
    free, leaving = available_resources_per_node(), state.get_draining_nodes()
    return [
        Node(node["NodeID"], node["Resources"], free.get(node["NodeID"], {}), node["NodeID"] in leaving)
        for node in ray.nodes()
        if node["Alive"]
    ]


class Surveyor:
    """Looks at the cluster for a controller.

    Args:
        resources: what each verifier asks for.

    Attributes:
        n_kept: places that verifiers must leave to others, who come later.
    """

    def __init__(self, resources: Mapping[str, float], n_kept: int = 0) -> None:
        self.n_kept = n_kept
        self._resources = resources

    async def survey(self) -> Survey:
        """Return what there is for verifiers."""
        nodes = await asyncio.to_thread(read_nodes)
        return Survey(
            nodes=frozenset(node.id for node in nodes),
            leaving=frozenset(node.id for node in nodes if node.is_leaving),
            n_free_places=sum(node.n_places(self._resources) for node in nodes) - self.n_kept,
        )


def explain_pending(resources: Mapping[str, float], deadline_s: float) -> str:
    """Say why an actor that asks for these resources found no place."""
    nodes = [node for node in read_nodes() if not node.is_leaving]
    lines = []
    for option, amount in resources.items():
        name = _name_of(option)
        have = sum(node.total.get(name, 0) for node in nodes)
        free = [node.free.get(name, 0) for node in nodes]
        on_one = f", at most {max(free):g} on one node" if len(nodes) > 1 else ""
        lines.append(f"{name}: want {amount:g}, have {have:g}, free {sum(free):g}{on_one}")
    return f"no place for an actor within {deadline_s:g} s ({'; '.join(lines)}); see `ray status`"


def _name_of(option: str) -> str:
    """Return Ray's name of the resource that an option such as `num_gpus` asks for."""
    return option.removeprefix("num_").upper().removesuffix("S")
