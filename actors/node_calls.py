"""One function, called on every node of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import ray
import ray.exceptions as failures
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tts_orch.errors import first_line

__all__ = ["NodeAnswer", "call_on_every_node"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class NodeAnswer(Generic[Result]):
    """What came back from a node.

    Attributes:
        address: of the node.
        resources: that it offers, by Ray's names.
        result: None if it failed.
        fault: one line on what went wrong, empty if nothing did.
    """

    address: str
    resources: Mapping[str, float]
    result: Result | None
    fault: str = ""


def call_on_every_node(
    deadline_s: float,
    function: Callable[Parameters, Result],
    *arguments: Parameters.args,
    **keywords: Parameters.kwargs,
) -> Iterator[NodeAnswer[Result]]:
    """Call a function on every living node at once, without taking any resources, and yield the answers node by node.

    Args:
        deadline_s: seconds that all of them have together.
        function: of a module that the nodes can import.
        arguments: its positional arguments.
        keywords: its keyword arguments.
    """
    wrap: Any = ray.remote  # its stubs know no function held in a variable
    nodes = [node for node in ray.nodes() if node["Alive"]]
    calls = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = wrap(num_cpus=0, max_retries=0, scheduling_strategy=there)(function)
        calls.append(task.remote(*arguments, **keywords))
    ended, _late = ray.wait(calls, num_returns=len(calls), timeout=deadline_s)
    for node, call in zip(nodes, calls, strict=True):
        place = node["NodeManagerAddress"], node["Resources"]
        if call not in ended:
            ray.cancel(call, force=True)
            yield NodeAnswer(*place, None, f"no answer within {deadline_s:g} s")
            continue
        try:
            yield NodeAnswer(*place, ray.get(call))
        except failures.RayError as error:
            yield NodeAnswer(*place, None, _reason(error))


def _reason(error: failures.RayError) -> str:
    """Return what the function raised, else what Ray says."""
    cause = getattr(error, "cause", None)
    return f"{type(cause).__name__}: {first_line(cause)}" if cause else first_line(error)
