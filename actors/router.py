"""The actor that hosts a router of problems to drafters, and the driver's client of it.

A router is worth no wait: where it is late or lost, problems are not assigned, and verifiers choose for themselves. Nothing is
lost with it: what verifiers reported is added up by its client, who tells the next one all of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import reduce
from operator import add
from typing import Final

from tts_orch.actors._remote import Remote, remote
from tts_orch.errors import WorkerLostError, first_line
from tts_orch.policies.routing.assignment import Assignment
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Problem

__all__ = ["Router", "RouterClient"]

logger = logging.getLogger(__name__)

_LOST: Final = "the router is lost: %s; problems go on without assigned drafters until another is there"
_PLACE_WITHIN_S: Final = 60.0
_REPLY_WITHIN_S: Final = 2.0
_TELL_EVERY_S: Final = 2.0

Router = remote(Assignment, is_beside_driver=True)


class RouterClient:
    """Tells a router what verifiers report, asks it about new problems, and starts another where it is lost.

    All methods belong to one event loop.

    Args:
        collect: returns what verifiers have counted since they were asked last.
        members: the drafters there are now.
    """

    def __init__(
        self, collect: Callable[[], Awaitable[Sequence[RoutingReport]]], members: Callable[[], Sequence[str]]
    ) -> None:
        self._collect = collect
        self._members = members
        self._reported = RoutingReport()
        self._router: Remote[Assignment] | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the router.

        Raises:
            PlacementError: it found no place.
            ClusterError: it does not answer.
            WorkerLostError: it died as it began.
        """
        await self._hire()
        self._keeping = asyncio.ensure_future(self._keep())

    async def assign(self, problem: Problem) -> str:
        """Return the drafter of a new problem, empty for none."""
        router = self._router
        if router is None:
            return ""
        question = problem.id, problem.domain or "", list(self._members())
        try:
            return await router.call(_REPLY_WITHIN_S, Assignment.assign, *question)
        except TimeoutError:
            return ""
        except WorkerLostError as error:
            self._lose(router, error)
            return ""

    async def close(self) -> None:
        """End the router."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._router is not None:
            self._router.kill()

    async def _hire(self) -> None:
        router = await Router.create(_PLACE_WITHIN_S, {"num_cpus": 0})
        await router.load(_PLACE_WITHIN_S, "the router does not answer", Assignment.learn, self._reported)
        self._router = router

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_TELL_EVERY_S)
            self._reported = reduce(add, await self._collect(), self._reported)
            router = self._router
            try:
                if router is None:
                    await self._hire()
                else:
                    await router.call(_REPLY_WITHIN_S, Assignment.learn, self._reported)
            except TimeoutError as error:
                logger.debug("the router is late: %s", first_line(error))
            except Exception as error:  # whatever it was, a router is worth no run
                self._lose(router, error)

    def _lose(self, router: Remote[Assignment] | None, error: Exception) -> None:
        """Do without a router; what is said of one that was given up already, or never came, is no news."""
        if router is not None and router is self._router:
            logger.warning(_LOST, first_line(error))
            self._router = None
        else:
            logger.debug(_LOST, first_line(error))
