"""The one place that calls actors: typed handles, deadlines, and creation that ends, with an explanation.

Retries are never left to Ray (`_failures` says why): whoever holds the handle decides what to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

import ray
import ray.exceptions as failures
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tts_orch.actors._cluster_nodes import current_node, explain_pending
from tts_orch.actors._failures import meaning
from tts_orch.errors import ClusterError, PlacementError, WorkerLostError, first_line

__all__ = ["SHORT_SPIN", "Remote", "RemoteClass", "remote"]

Core = TypeVar("Core")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_HEALTH: Final = "health"  # concurrency group whose methods answer while the others are busy

SHORT_SPIN: Final[Mapping[str, str]] = {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "2000")}
"""Threads that wait for their team spin for microseconds, not milliseconds: on cores that others use too, a long spin
takes the core from the thread that is waited for (measured: up to ten times slower passes)."""

_TOO_MANY_PENDING: Final = 64
_RETRIES_ARE_OURS: Final[Mapping[str, int]] = {"max_restarts": 0, "max_task_retries": 0}


class Remote(Generic[Core]):
    """A handle to an actor that hosts a `Core`; methods are named through the class, so that calls are type checked."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @classmethod
    def named(cls, name: str) -> Remote[Core]:
        """Return the handle to the actor that has a name now.

        Raises:
            WorkerLostError: there is none.
        """
        try:
            return cls(ray.get_actor(name))
        except ValueError:
            raise WorkerLostError(f"there is no actor {name}") from None

    def begin(
        self,
        method: Callable[Concatenate[Core, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Future[Result]:
        """Run a method of the actor without waiting for it: for plain threads, which wait within deadlines of their own.

        Both this and the future raise what Ray raises.
        """
        call = getattr(self._handle, method.__name__).remote(*arguments, **keywords)
        return cast("Future[Result]", call.future())

    async def call(
        self,
        deadline_s: float,
        method: Callable[Concatenate[Core, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        """Run a method of the actor and wait for its result.

        Raises:
            TimeoutError: no reply within the deadline (seconds), or too many calls are pending; the call may still run.
            WorkerLostError: the actor is gone.
            Exception: whatever the method itself raised.
        """
        return cast(Result, await self._await(deadline_s, getattr(self._handle, method.__name__), arguments, keywords))

    async def call_health(self, deadline_s: float, method: Callable[[Core], Result]) -> Result:
        """Run a method in the health group, where it does not queue behind other calls; raises as `call` does."""
        remote_method = getattr(self._handle, method.__name__).options(concurrency_group=_HEALTH)
        return cast(Result, await self._await(deadline_s, remote_method, (), {}))

    async def load(
        self,
        deadline_s: float,
        failure: str,
        method: Callable[Concatenate[Core, Parameters], Result],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Result:
        """Run the method without which an actor is of no use; where it fails the actor is ended.

        Args:
            deadline_s: seconds.
            failure: what has not happened if the deadline passes.
            method: of the actor.
            arguments: of the method.
            keywords: of the method.

        Raises:
            ClusterError: no reply within the deadline.
            Exception: otherwise as `call` does.
        """
        try:
            return await self.call(deadline_s, method, *arguments, **keywords)
        except TimeoutError as error:
            self.kill()
            raise ClusterError(f"{failure} ({first_line(error)}); see `ray logs`") from error
        except BaseException:
            self.kill()
            raise

    async def wait_ready(self, deadline_s: float) -> None:
        """Wait until the actor is placed and constructed; raises as `call` does."""
        await self._await(deadline_s, self._handle.__ray_ready__, (), {})

    def kill(self) -> None:
        """End the actor's process at once; a dead one is left alone."""
        if ray.is_initialized():
            ray.kill(self._handle)

    async def _await(self, deadline_s: float, method: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            return await asyncio.wait_for(method.remote(*arguments, **keywords), deadline_s)
        except asyncio.TimeoutError:
            raise TimeoutError(f"no reply within {deadline_s:g} s") from None
        except failures.RayError as error:
            raise meaning(error) from error


@dataclass(frozen=True, slots=True)
class RemoteClass(Generic[Parameters, Core]):
    """A plain class and how Ray shall run it; Ray is asked for nothing before `create`.

    Attributes:
        core: the plain class.
        options: Ray's.
        is_beside_driver: whether it runs on the node of the process that creates it, and so is lost with that only.
    """

    core: Callable[Parameters, Core]
    options: Mapping[str, Any]
    is_beside_driver: bool = False

    async def create(
        self,
        deadline_s: float,
        resources: Mapping[str, float],
        *arguments: Parameters.args,
        **keywords: Parameters.kwargs,
    ) -> Remote[Core]:
        """Start an actor and wait for it, because Ray lets one that fits nowhere pend without a word.

        Args:
            deadline_s: seconds for placement and construction.
            resources: `num_cpus`, `num_gpus`, ... that it needs.
            arguments: positional arguments of the plain class.
            keywords: keyword arguments of the plain class.

        Raises:
            PlacementError: nobody could host it in time.
            WorkerLostError: it died as it began.
            ClusterError: its node could not be prepared for it.
        """
        wrap: Any = ray.remote  # its stubs know neither concurrency groups nor a class held in a variable
        options = {**self.options, **resources, **self._place()}
        actor: Remote[Core] = Remote(wrap(**options)(self.core).remote(*arguments, **keywords))
        try:
            await actor.wait_ready(deadline_s)
        except TimeoutError:
            actor.kill()
            raise PlacementError(await asyncio.to_thread(explain_pending, resources, deadline_s)) from None
        except asyncio.CancelledError:
            actor.kill()
            raise
        return actor

    def named(self, name: str) -> RemoteClass[Parameters, Core]:
        """Return the class of actors that are found by this name (`Remote.named`), one at a time."""
        return replace(self, options={**self.options, "name": name})

    def _place(self) -> dict[str, Any]:
        if not self.is_beside_driver:
            return {}
        return {"scheduling_strategy": NodeAffinitySchedulingStrategy(current_node(), soft=False)}


def remote(
    core: Callable[Parameters, Core], *, is_beside_driver: bool = False, **options: Any
) -> RemoteClass[Parameters, Core]:
    """Describe an actor that hosts the plain class `core`, with a health group and without any retry by Ray."""
    defaults = {"concurrency_groups": {_HEALTH: 1}, "max_pending_calls": _TOO_MANY_PENDING, **_RETRIES_ARE_OURS}
    return RemoteClass(core, {**defaults, **options}, is_beside_driver)
