"""Checks of the Ray cluster: whether it answers, and what its nodes have."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final
from urllib.parse import urlsplit

from tts_orch.actors.cluster import Cluster
from tts_orch.actors.node_calls import NodeAnswer, call_on_every_node
from tts_orch.doctor.finding import Finding, failure, ok, stopping_at_errors, warning
from tts_orch.doctor.store import check_store
from tts_orch.doctor.target import check_target
from tts_orch.errors import ClusterError, first_line

__all__ = ["check_cluster"]

_PORT_WITHIN_S: Final = 5.0
_NODES_WITHIN_S: Final = 60.0
_COMPARED: Final = ("tts-orch", "ray", "torch", "transformers", "numba")
_START: Final = "start it (`ray up cluster.yaml`), forward its port (`ray dashboard cluster.yaml`), or mend the address"


def check_cluster(address: str | None, store: str, target: str) -> Iterator[Finding]:
    """Yield whether the cluster answers, and what each node lacks.

    Args:
        address: as for `tts-orch run --address`, or the http address that jobs are sent to; None starts a Ray of our own.
        store: URL of the store, which must be within reach of every node.
        target: the model, which every node must have.

    Raises:
        ClusterError: it does not answer.
    """
    if address:
        _check_port(address)
    if address and address.startswith("http"):
        yield _job_server(address)
        return
    with closing(Cluster(address)):
        answers = list(call_on_every_node(_NODES_WITHIN_S, _look_around, store, target))
        yield ok("cluster", f"{address or 'a Ray of our own starts here'}; {_resources(answers)}")
        yield from map(_node, answers)
        yield from _differences(answers)


def _check_port(address: str) -> None:
    """Find out in seconds what Ray would try for a minute.

    Raises:
        ClusterError: nothing listens there.
    """
    place = urlsplit(address if "://" in address else f"//{address}")
    if not place.hostname or not place.port:
        return  # such as `auto`
    try:
        socket.create_connection((place.hostname, place.port), _PORT_WITHIN_S).close()
    except OSError as error:
        raise ClusterError(f"nothing answers at {address} ({error.strerror or error}); {_START}") from None


def _job_server(address: str) -> Finding:
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    try:
        JobSubmissionClient(address).get_version()
    except AuthenticationError:
        raise ClusterError(f"{address} refuses us; set RAY_AUTH_MODE=token and give the cluster's token") from None
    except (ConnectionError, RuntimeError) as error:
        raise ClusterError(f"{address}: {first_line(error)}; is this the address of Ray's dashboard?") from None
    return ok("cluster", f"{address} takes jobs")


@dataclass(frozen=True, slots=True)
class _NodeState:
    versions: dict[str, str]
    faults: list[str]


def _look_around(store: str, target: str) -> _NodeState:
    checks = {"store": lambda: check_store(store), "target": lambda: check_target(target)}
    findings = [finding for name, check in checks.items() for finding in stopping_at_errors(name, check)]
    faults = [finding.text for finding in findings if finding.state == "failure"]
    return _NodeState({name: version(name) for name in _COMPARED}, faults)


def _node(answer: NodeAnswer[_NodeState]) -> Finding:
    check = f"node {answer.address}"
    if answer.result is None:
        return failure(check, f"{answer.fault}; install the same package there, see deploy/cluster.local.yaml")
    if answer.result.faults:
        return failure(check, "; ".join(answer.result.faults))
    return ok(check, ", ".join(f"{name} {number}" for name, number in answer.result.versions.items()))


def _differences(answers: list[NodeAnswer[_NodeState]]) -> Iterator[Finding]:
    """Yield where nodes have other versions than this process: Ray has seen to its own."""
    ours = {name: version(name) for name in _COMPARED}
    for answer in answers:
        theirs = answer.result.versions if answer.result else ours
        names = [name for name in _COMPARED if theirs[name] != ours[name]]
        if names:
            text = ", ".join(f"{name} {theirs[name]} instead of {ours[name]}" for name in names)
            yield warning(f"node {answer.address}", f"{text}; a candidate moves between nodes of one fingerprint only")


def _resources(answers: list[NodeAnswer[_NodeState]]) -> str:
    totals = {name: sum(answer.resources.get(name, 0) for answer in answers) for name in ("CPU", "GPU")}
    return f"{len(answers)} nodes, {totals['CPU']:g} CPUs, {totals['GPU']:g} GPUs"
