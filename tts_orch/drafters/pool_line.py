"""The line to a pool of drafters: no wait without a deadline, and pauses after failures.

Drafts are dispensable: whatever goes wrong, the answer is that there are none, for now.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Protocol

from tts_orch.drafters.pool_messages import PoolReply, PoolRequest
from tts_orch.errors import WorkerLostError, first_line

__all__ = ["Exchange", "LineStatistics", "PoolLine", "PoolTransport"]

logger = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class PoolTransport(Protocol):
    """Carries requests to a pool in another process."""

    def send(self, request: PoolRequest) -> Future[PoolReply]:
        """Send a request, without waiting; raises or fails with any exception if there is no pool."""
        ...

    def reset(self) -> None:
        """Look for the pool anew with the next request: it may have been restarted."""
        ...


@dataclass(slots=True)
class LineStatistics:
    """What asking a pool took: bytes sent; seconds waited for replies; seconds that it drafted while nobody waited."""

    requests: int = 0
    failures: int = 0
    sent_bytes: int = 0
    waited_seconds: float = 0.0
    hidden_seconds: float = 0.0


class Exchange:
    """A request on its way, or answered.

    Attributes:
        reply: the answer; None before `PoolLine.collect`, and after it if none came.
        is_collected: whether it was waited for.
    """

    def __init__(self, future: Future[PoolReply]) -> None:
        self.future = future
        self.reply: PoolReply | None = None
        self.is_collected = False
        self.sent_at = time.monotonic()
        self.answered_at: float | None = None
        future.add_done_callback(self._note_answer)

    def _note_answer(self, future: Future[PoolReply]) -> None:
        self.answered_at = time.monotonic()


class PoolLine:
    """Sends requests to one pool for one drafter of it.

    Args:
        transport: carries them.
        name: the drafter's, for messages.
        deadline_s: longest wait for a reply, in seconds after it was asked for.
        first_pause_s: how long to do without after a failure; doubles with each one in a row.
    """

    def __init__(
        self, transport: PoolTransport, name: str, deadline_s: float, first_pause_s: float = _FIRST_PAUSE_S
    ) -> None:
        self.statistics = LineStatistics()
        self._transport = transport
        self._name = name
        self._deadline_s = deadline_s
        self._first_pause_s = self._pause_s = first_pause_s
        self._rests_until = 0.0
        self._is_down = False

    @property
    def is_paused(self) -> bool:
        """Whether it is too early after a failure to ask again."""
        return time.monotonic() < self._rests_until

    def ask(self, request: PoolRequest) -> Exchange | None:
        """Send a request; None if it cannot be sent."""
        try:
            exchange = Exchange(self._transport.send(request))
        except Exception as error:
            self._fail(error)
            return None
        self.statistics.requests += 1
        self.statistics.sent_bytes += sum(news.n_bytes for news in request.news)
        return exchange

    def collect(self, exchange: Exchange) -> PoolReply | None:
        """Return the reply, None if there is none within the deadline; asked again, the same."""
        if exchange.is_collected:
            return exchange.reply
        exchange.is_collected = True
        collected_at = time.monotonic()
        try:
            reply = exchange.future.result(max(exchange.sent_at + self._deadline_s - collected_at, 0.0))
            if not reply.has_member:
                raise WorkerLostError(f"it has no drafter {self._name!r}")
        except Exception as error:
            self._fail(error)
        else:
            self._succeed()
            exchange.reply = reply
        now = time.monotonic()
        self.statistics.waited_seconds += now - collected_at
        self.statistics.hidden_seconds += max(min(exchange.answered_at or now, collected_at) - exchange.sent_at, 0.0)
        return exchange.reply

    def _succeed(self) -> None:
        self._pause_s = self._first_pause_s
        if self._is_down:
            self._is_down = False
            logger.info("the pool drafts for %s again", self._name)

    def _fail(self, error: Exception) -> None:
        self.statistics.failures += 1
        self._rests_until = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._transport.reset()
        if not self._is_down:
            self._is_down = True
            is_late = isinstance(error, TimeoutError)  # says nothing
            reason = f"no reply within {self._deadline_s:g} s" if is_late else first_line(error)
            logger.warning("the pool does not draft for %s: %s; going on without its drafts", self._name, reason)
