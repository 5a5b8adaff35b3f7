"""The search controller: spreads decoding over verifiers and sees every candidate through to its end.

It lives in the driver's event loop and holds every live candidate's tokens, so a lost verifier costs only what was on its
way: the candidates go on elsewhere from the tokens received, with the same seed; under keyed verification they end with the
same tokens.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Final, TypeVar

from tts_orch.actors._live_candidate import TRIES, LiveCandidate
from tts_orch.actors._pending_queue import PendingQueue
from tts_orch.actors._verifier_link import Verifier, VerifierLink
from tts_orch.actors.target_verifier import VerifierDescription
from tts_orch.errors import ClusterError, OrchestratorError, WorkerLostError
from tts_orch.records import Chunk, DecodeRequest, FinishReason

__all__ = ["SearchController"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

_REPLACEMENTS_PER_VERIFIER: Final = 3


class SearchController:
    """Decodes requests on a pool of verifiers; all methods belong to one event loop.

    Args:
        start_verifier: starts one verifier and waits for it, within a deadline of its own.
        n_verifiers: how many to keep.
        on_tokens: called with the number of tokens whenever some arrive.

    Attributes:
        failure: why nothing can be decoded any more, None while something can.
    """

    def __init__(
        self,
        start_verifier: Callable[[], Awaitable[Verifier]],
        n_verifiers: int,
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
    ) -> None:
        self.failure: OrchestratorError | None = None
        self._start_verifier = start_verifier
        self._n_verifiers = n_verifiers
        self._on_tokens = on_tokens
        self._queue = PendingQueue()
        self._links: list[VerifierLink] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._n_starting = 0
        self._replacements_left = _REPLACEMENTS_PER_VERIFIER * n_verifiers
        self._arrivals = 0

    async def start(self) -> None:
        """Start all verifiers.

        Raises:
            TargetError: the target model cannot be served.
            ClusterError: a verifier found no place.
        """
        starting = [asyncio.ensure_future(self._start_verifier()) for _ in range(self._n_verifiers)]
        try:
            for verifier in await asyncio.gather(*starting):
                self._add(verifier)
        except BaseException:
            for started in await _cancel_all(starting):
                if not isinstance(started, BaseException):
                    started.kill()
            raise

    @property
    def window(self) -> int:
        """Candidates that the verifiers hold at most."""
        return sum(link.window for link in self._links)

    @property
    def descriptions(self) -> list[VerifierDescription]:
        """The verifiers at work."""
        return [link.verifier.description for link in self._links]

    def decode(
        self,
        request: DecodeRequest,
        problem_id: str,
        order: int,
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
    ) -> LiveCandidate:
        """Queue a request; await the candidate's `decoded` for its end, which never raises.

        Args:
            request: its priority comes first in the queue.
            problem_id: problems are kept together on a verifier where the load allows.
            order: place of the problem among the problems.
            on_tokens: called with the number of tokens whenever some of it arrive.

        Raises:
            OrchestratorError: the controller has failed, see `failure`.
        """
        if self.failure is not None:
            raise self.failure
        self._arrivals += 1
        candidate = LiveCandidate(request, problem_id, (request.priority, order, self._arrivals), on_tokens)
        self._enqueue(candidate)
        return candidate

    def cancel(self, candidate: LiveCandidate) -> None:
        """End a candidate as `cancelled`, soon; the tokens generated until then are in its end."""
        if candidate.decoded.done():
            return
        candidate.is_cancelled = True
        if self._queue.remove(candidate):
            candidate.finish(FinishReason.CANCELLED)
        for link in self._links:
            link.cancel(candidate)

    async def close_scope(self, scope: str) -> None:
        """Have every verifier forget the draft statistics of a scope."""
        closing = (link.verifier.close_scope(scope) for link in self._links)
        await asyncio.gather(*closing, return_exceptions=True)  # a lost verifier has forgotten them already

    async def statistics(self) -> dict[str, float]:
        """Return the sum of the verifiers' counters; a verifier that does not answer is left out."""
        answers = await asyncio.gather(*(link.verifier.statistics() for link in self._links), return_exceptions=True)
        total: Counter[str] = Counter()
        for answer in answers:
            if not isinstance(answer, BaseException):
                total.update(answer)
        return dict(total)

    async def close(self) -> None:
        """End open candidates as `cancelled` and stop the verifiers."""
        self._fail(ClusterError("the orchestrator is closed"), FinishReason.CANCELLED)
        await _cancel_all(self._tasks)
        await asyncio.gather(*(link.verifier.close() for link in self._links))
        self._links.clear()

    def _add(self, verifier: Verifier) -> None:
        link = VerifierLink(verifier)
        self._links.append(link)
        self._spawn(self._serve(link))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _enqueue(self, candidate: LiveCandidate) -> None:
        self._queue.push(candidate)
        self._wake()

    def _wake(self) -> None:
        for link in self._links:
            link.has_work.set()

    async def _serve(self, link: VerifierLink) -> None:
        try:
            while True:
                self._fill(link)
                if link.is_busy:
                    for chunk in await self._exchange(link):
                        self._receive(link, chunk)
                else:
                    link.has_work.clear()
                    await link.has_work.wait()
        except Exception as error:  # whatever it was, the verifier's answers can no longer be relied on
            self._lose(link, error)

    async def _exchange(self, link: VerifierLink) -> list[Chunk]:
        """Wait for new chunks; work that comes up meanwhile is handed in at once."""
        link.has_work.clear()
        exchange = asyncio.ensure_future(link.exchange())
        try:
            while True:
                news = asyncio.ensure_future(link.has_work.wait())
                await asyncio.wait((exchange, news), return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
                if exchange.done():
                    return exchange.result()
                link.has_work.clear()
                self._fill(link)
                await link.order()
        finally:
            exchange.cancel()

    def _fill(self, link: VerifierLink) -> None:
        n_open = len(self._queue) + sum(len(other.live) for other in self._links)
        share = math.ceil(n_open / len(self._links))
        has_taken = False
        while link.has_room(share):
            candidate = self._queue.pop_for(link, self._links, share)
            if candidate is None:
                return
            link.take(candidate)
            has_taken = True
        if has_taken and len(self._queue):  # what was kept for this one others may take now
            self._wake()

    def _receive(self, link: VerifierLink, chunk: Chunk) -> None:
        candidate = link.live.get(chunk.candidate_id)
        if candidate is None:  # a chunk sent twice, or the rest of a candidate that was given up
            return
        try:
            n_tokens = candidate.receive(chunk)
        except ValueError as error:
            link.cancel(candidate)
            candidate.finish(FinishReason.ERROR, f"{candidate.worker}: {error}")
        else:
            self._on_tokens(n_tokens)
            candidate.on_tokens(n_tokens)
        if candidate.decoded.done():
            link.drop(chunk.candidate_id)

    def _lose(self, link: VerifierLink, error: Exception) -> None:
        worker = link.verifier.description.worker
        logger.warning("verifier %s is lost: %s; its %d candidates go on elsewhere", worker, error, len(link.live))
        self._links.remove(link)
        link.verifier.kill()
        for candidate in link.live.values():
            self._retry(candidate, error)
        if self._replacements_left:
            self._replacements_left -= 1
            self._n_starting += 1
            self._spawn(self._replace())
        self._end_unservable(error)

    def _retry(self, candidate: LiveCandidate, error: Exception) -> None:
        candidate.lost_workers += 1
        if candidate.is_cancelled:
            candidate.finish(FinishReason.CANCELLED)
        elif candidate.lost_workers >= TRIES:
            candidate.finish(
                FinishReason.ERROR, f"{candidate.lost_workers} workers were lost under it, at last: {error}"
            )
        else:
            self._enqueue(candidate)

    async def _replace(self) -> None:
        reason: Exception = WorkerLostError("the replacement has another fingerprint")
        try:
            self._add(await self._start_verifier())
        except Exception as error:
            logger.warning("no replacement for a lost verifier: %s", error)
            reason = error
        finally:
            self._n_starting -= 1
        self._end_unservable(reason)

    def _end_unservable(self, reason: Exception) -> None:
        """Give up what no verifier at work, or on its way, can go on with."""
        if self._n_starting:
            return
        if not self._links:
            self._fail(ClusterError(f"no verifier is left: {reason}"), FinishReason.ERROR)
        fingerprints = {link.fingerprint for link in self._links}
        for candidate in self._queue.pop_all_but(fingerprints):
            candidate.finish(
                FinishReason.ERROR, f"no worker with fingerprint {candidate.fingerprint} is left: {reason}"
            )

    def _fail(self, failure: OrchestratorError, end: FinishReason) -> None:
        self.failure = self.failure or failure
        for candidate in self._queue.pop_all_but(()):
            candidate.finish(end, str(failure))
        for link in self._links:
            for candidate in link.live.values():
                candidate.finish(end, str(failure))


async def _cancel_all(tasks: Iterable[asyncio.Future[Result]]) -> list[Result | BaseException]:
    """Cancel what still runs, and return how each ended."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    return await asyncio.gather(*waiting, return_exceptions=True)
