"""Solutions that wait for a reward model: asked for in batches, again where it failed, of another actor where it was lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tts_orch.actors.reward_model import RewardDescription
from tts_orch.errors import ClusterError, OrchestratorError, WorkerLostError, first_line
from tts_orch.rewards.base import Solution, StepScores

__all__ = ["RewardHost", "RewardQueue"]

logger = logging.getLogger(__name__)

_RESTARTS: Final = 8
_TRIES: Final = 2  # the second one alone, so that a solution that ends the actor takes no other with it


_LATE: Final = StepScores(failure="a deadline passed before")


class RewardHost(Protocol):
    """A reward model in another process."""

    @property
    def description(self) -> RewardDescription:
        """What it is."""
        ...

    async def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        """Score solutions; raises TimeoutError if no reply arrives, WorkerLostError if none will."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


@dataclass(slots=True)
class _Request:
    """A solution that somebody waits for."""

    solution: Solution
    scores: asyncio.Future[StepScores]
    tries: int = 0

    def answer(self, scores: StepScores) -> None:
        """Hand over the scores, if they are still waited for."""
        if not self.scores.done():
            self.scores.set_result(scores)

    def fail(self, error: Exception) -> None:
        """Raise an error where the scores are waited for."""
        if not self.scores.done():
            self.scores.set_exception(error)


class RewardQueue:
    """Has solutions scored by one reward model at a time.

    Args:
        start_host: starts a reward model and waits for it, within a deadline of its own.
        size: solutions in one call.

    Attributes:
        seconds: how long calls took.
    """

    def __init__(self, start_host: Callable[[], Awaitable[RewardHost]], size: int) -> None:
        self.seconds = 0.0
        self._start_host = start_host
        self._size = size
        self._host: RewardHost | None = None
        self._restarts_left = _RESTARTS
        self._waiting: deque[_Request] = deque()
        self._asking: asyncio.Task[None] | None = None

    async def start(self) -> RewardDescription:
        """Start the reward model; raises as `start_host` does."""
        self._host = await self._start_host()
        return self._host.description

    async def score(self, solutions: Sequence[Solution], deadline: asyncio.Event | None = None) -> list[StepScores]:
        """Return the scores of each solution; cancelling the caller drops what has not been sent, and so does a deadline.

        Raises:
            ClusterError: the reward model was lost too often.
        """
        loop = asyncio.get_running_loop()
        requests = [_Request(solution, loop.create_future()) for solution in solutions]
        giving_up = asyncio.ensure_future(_give_up(requests, deadline or asyncio.Event()))
        self._waiting.extend(requests)
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(self._ask_for_all())
        try:
            return await asyncio.gather(*(request.scores for request in requests))
        finally:
            giving_up.cancel()
            for request in requests:
                request.scores.cancel()

    async def close(self) -> None:
        """End the reward model; what waits is cancelled."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])
        self._lose_host()

    async def _ask_for_all(self) -> None:
        """Ask for what waits, batch by batch; what comes in meanwhile goes with the next one."""
        while batch := self._next_batch():
            started = time.monotonic()
            try:
                await self._ask(batch)
            except asyncio.CancelledError:
                for request in (*batch, *self._waiting):
                    request.scores.cancel()
                raise
            except OrchestratorError as error:  # there is no reward model any more
                for request in (*batch, *self._waiting):
                    request.fail(error)
            self.seconds += time.monotonic() - started

    def _next_batch(self) -> list[_Request]:
        self._waiting = deque(request for request in self._waiting if not request.scores.done())
        size = 1 if self._waiting and self._waiting[0].tries else self._size
        return [self._waiting.popleft() for _ in range(min(size, len(self._waiting)))]

    async def _ask(self, batch: Sequence[_Request]) -> None:
        try:
            host = await self._living_host()
            answers = await host.score([request.solution for request in batch])
        except (WorkerLostError, TimeoutError) as error:
            self._lose_host()
            self._try_again(batch, error)
        except OrchestratorError:
            raise
        except Exception as error:  # whatever the model raises
            self._try_again(batch, error)
        else:
            for request, scores in zip(batch, answers, strict=True):
                request.answer(scores)

    def _try_again(self, batch: Sequence[_Request], error: Exception) -> None:
        logger.warning("the reward model failed: %s", first_line(error))
        for request in reversed(batch):
            request.tries += 1
            if request.tries < _TRIES:
                self._waiting.appendleft(request)
            else:
                request.answer(StepScores(failure=f"the reward model failed: {first_line(error)}"))

    async def _living_host(self) -> RewardHost:
        if self._host is None:
            if not self._restarts_left:
                raise ClusterError(f"the reward model was lost {_RESTARTS + 1} times; see `ray logs`")
            self._restarts_left -= 1
            self._host = await self._start_host()
        return self._host

    def _lose_host(self) -> None:
        if self._host is not None:
            self._host.kill()
            self._host = None


async def _give_up(requests: Sequence[_Request], deadline: asyncio.Event) -> None:
    """Answer what is not answered by a deadline."""
    await deadline.wait()
    for request in requests:
        request.answer(_LATE)
