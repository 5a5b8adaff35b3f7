"""The one place that makes Ray calls: typed handles, deadlines, bounded creation, and what each failure means.

Retries are never left to Ray: a restarted actor has lost its state and a replayed stream may lose or double tokens, so
every actor is created with `max_restarts=0, max_task_retries=0`, and whoever holds the handle decides what to do.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast

import ray
import ray.exceptions as failures

from tts_orch.errors import ClusterError, OrchestratorError, WorkerLostError, first_line

__all__ = ["SHORT_SPIN", "Remote", "RemoteClass", "remote"]

Core = TypeVar("Core")
Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_HEALTH: Final = "health"  # concurrency group whose methods answer while the others are busy

_LOST: Final = (
    failures.RayActorError,  # died or unavailable
    failures.NodeDiedError,
    failures.WorkerCrashedError,
    failures.ObjectLostError,
    failures.OutOfMemoryError,
    failures.LocalRayletDiedError,
)
_BUSY: Final = (failures.PendingCallsLimitExceeded, failures.GetTimeoutError)

SHORT_SPIN: Final[Mapping[str, str]] = {"GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "2000")}
"""Threads that wait for their team spin for microseconds, not milliseconds: on cores that others use too, a long spin
takes the core from the thread that is waited for (measured: up to ten times slower passes)."""

_TOO_MANY_PENDING: Final = 64
_RETRIES_ARE_OURS: Final[Mapping[str, int]] = {"max_restarts": 0, "max_task_retries": 0}


class Remote(Generic[Core]):
    """A handle to an actor that hosts a `Core`; methods are named through the class, so that calls are type checked."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

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
            raise _meaning(error) from error


def _meaning(error: failures.RayError) -> Exception:
    """Return the exception that callers should see: worker lost, back-pressure, or a fault of our own."""
    if isinstance(error, failures.RayTaskError):
        return error.cause if isinstance(error.cause, OrchestratorError) else error
    if isinstance(error, _LOST):
        return WorkerLostError(f"worker lost: {first_line(error)}")
    if isinstance(error, _BUSY):
        return TimeoutError(str(error))
    if isinstance(error, failures.AuthenticationError):
        return ClusterError("Ray refused the connection; set RAY_AUTH_MODE to the cluster's mode and give its token")
    return ClusterError(f"Ray: {first_line(error)}")


@dataclass(frozen=True, slots=True)
class RemoteClass(Generic[Parameters, Core]):
    """A plain class and how Ray shall run it; Ray is asked for nothing before `create`."""

    core: Callable[Parameters, Core]
    options: Mapping[str, Any]

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
            ClusterError: nobody could host it in time.
        """
        wrap: Any = ray.remote  # its stubs know neither concurrency groups nor a class held in a variable
        actor: Remote[Core] = Remote(wrap(**self.options, **resources)(self.core).remote(*arguments, **keywords))
        try:
            await actor.wait_ready(deadline_s)
        except TimeoutError:
            actor.kill()
            raise ClusterError(await asyncio.to_thread(_explain_pending, resources, deadline_s)) from None
        except asyncio.CancelledError:
            actor.kill()
            raise
        return actor


def remote(core: Callable[Parameters, Core], **options: Any) -> RemoteClass[Parameters, Core]:
    """Describe an actor that hosts the plain class `core`, with a health group and without any retry by Ray."""
    defaults = {"concurrency_groups": {_HEALTH: 1}, "max_pending_calls": _TOO_MANY_PENDING, **_RETRIES_ARE_OURS}
    return RemoteClass(core, {**defaults, **options})


def _explain_pending(resources: Mapping[str, float], deadline_s: float) -> str:
    have, free = ray.cluster_resources(), ray.available_resources()
    lines = []
    for option, amount in resources.items():
        name = option.removeprefix("num_").upper().removesuffix("S")
        lines.append(f"{name}: want {amount:g}, have {have.get(name, 0):g}, free {free.get(name, 0):g}")
    return f"no place for an actor within {deadline_s:g} s ({'; '.join(lines)}); see `ray status`"
