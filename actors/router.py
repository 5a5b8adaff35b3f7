"""The actor that hosts a router of problems to drafters, and the driver's client of it.

A router is worth no wait: where it is late or lost, problems are not assigned, and verifiers choose for themselves.
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

_PLACE_WITHIN_S: Final = 60.0
_REPLY_WITHIN_S: Final = 2.0
_COLLECT_EVERY_S: Final = 2.0

Router = remote(Assignment, is_beside_driver=True)


class RouterClient:
    """Hands verifiers' reports to a router, and asks it about new problems; all methods belong to one event loop.

    Args:
        collect: returns what verifiers have counted since they were asked last.
        members: the drafters there are now.
    """

    def __init__(
        self, collect: Callable[[], Awaitable[Sequence[RoutingReport]]], members: Callable[[], Sequence[str]]
    ) -> None:
        self._collect = collect
        self._members = members
        self._router: Remote[Assignment] | None = None
        self._collecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the router.

        Raises:
            PlacementError: it found no place.
            WorkerLostError: it died as it began.
        """
        self._router = await Router.create(_PLACE_WITHIN_S, {"num_cpus": 0})
        self._collecting = asyncio.ensure_future(self._keep_collecting(self._router))

    async def assign(self, problem: Problem) -> str:
        """Return the drafter of a new problem, empty for none."""
        if self._router is None:
            return ""
        question = problem.id, problem.domain or "", list(self._members())
        try:
            return await self._router.call(_REPLY_WITHIN_S, Assignment.assign, *question)
        except TimeoutError:
            return ""
        except WorkerLostError as error:
            self._do_without(error)
            return ""

    async def close(self) -> None:
        """End the router."""
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.wait([self._collecting])
        if self._router is not None:
            self._router.kill()

    async def _keep_collecting(self, router: Remote[Assignment]) -> None:
        while self._router is not None:
            await asyncio.sleep(_COLLECT_EVERY_S)
            reports = [report for report in await self._collect() if report.tallies]
            if not reports:
                continue
            try:
                await router.call(_REPLY_WITHIN_S, Assignment.add, reduce(add, reports))
            except TimeoutError as error:  # it may have arrived; counted twice would be worse than lost
                logger.debug("the router does not answer: %s", first_line(error))
            except WorkerLostError as error:
                self._do_without(error)

    def _do_without(self, error: Exception) -> None:
        if self._router is not None:
            logger.warning("the router is lost: %s; problems go on without assigned drafters", first_line(error))
            self._router = None
