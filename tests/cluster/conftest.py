"""Several Ray nodes on this machine, which tests add, drain and kill."""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import ray
from ray._raylet import GcsClient
from ray.cluster_utils import Cluster
from ray.core.generated.autoscaler_pb2 import DrainNodeReason

_NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
_NOTICE_A_DEAD_NODE_SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_failure_threshold": 3,
}


# Chosen here, for a raylet does not wait long until slow agents have told it which ones they have.
_AGENT_PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")


class Nodes:
    """A cluster whose first node, the head, hosts this process too; each of the others claims to have a GPU."""

    def __init__(self, folder: Path) -> None:
        self.others: list[Any] = []
        self._drained: set[str] = set()
        self._cluster = Cluster()
        self._cluster.add_node(
            **_NODE,
            **_free_ports(),
            include_dashboard=False,
            temp_dir=str(folder / "ray"),
            _system_config=_NOTICE_A_DEAD_NODE_SOON,
        )
        ray.init(self._cluster.address, log_to_driver=False)

    def add(self) -> str:
        """Start a node and return its id."""
        self.others.append(self._cluster.add_node(**_NODE, **_free_ports(), num_gpus=1))
        return str(self.others[-1].node_id)

    def set_to(self, n_nodes: int) -> None:
        """Have so many nodes beside the head, none of which is about to leave."""
        staying = [node for node in self.others if node.node_id not in self._drained]
        for node in [node for node in self.others if node not in staying[:n_nodes]]:
            self.kill(node.node_id)
        for _ in range(n_nodes - len(staying)):
            self.add()

    def kill(self, node_id: str) -> None:
        """End a node with all its processes, without a warning."""
        (node,) = [node for node in self.others if node.node_id == node_id]
        self.others.remove(node)
        self._cluster.remove_node(node, allow_graceful=False)

    def drain(self, node_id: str, within_s: float = 120.0) -> None:
        """Announce that a node is about to be taken away, as clouds do."""
        reason = DrainNodeReason.DRAIN_NODE_REASON_PREEMPTION
        deadline_ms = int((time.time() + within_s) * 1000)
        is_accepted, message = GcsClient(address=self._cluster.address).drain_node(
            node_id, reason, "taken away", deadline_ms
        )
        assert is_accepted, message
        self._drained.add(node_id)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Run a cluster; skipped where this process is connected to another one."""
    if ray.is_initialized():
        pytest.skip("this process is connected to a Ray of one node; run tests/cluster by itself")
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # unix sockets need a short path
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("HOME", str(folder))
        environment.setenv("RAY_TMPDIR", str(folder))  # the default may not exist yet, and Ray notes the head there
        nodes = Nodes(folder)
    yield nodes
    nodes.close()
    shutil.rmtree(folder, ignore_errors=True)


def _free_ports() -> dict[str, int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _AGENT_PORTS]
        return {name: place.getsockname()[1] for name, place in zip(_AGENT_PORTS, sockets, strict=True)}


def wait_until(holds: Callable[[], bool], within_s: float = 100.0) -> None:
    """Wait for a condition, and fail where it does not come."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
