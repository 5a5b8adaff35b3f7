"""The search controller: spreads decoding over verifiers and sees every candidate through to its end.

It lives in the driver's event loop and holds every live candidate's tokens, so a lost verifier costs only what was on its
way: the candidates go on elsewhere from the tokens received, with the same seed; under keyed verification they end with the
same tokens.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace

from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._live_candidate import TRIES, LiveCandidate
from tts_orch.actors._pending_queue import PendingQueue
from tts_orch.actors._verifier_link import VerifierLink
from tts_orch.actors._verifier_pool import StartVerifier, SurveyCluster, VerifierPool
from tts_orch.actors.target_verifier import VerifierDescription
from tts_orch.errors import ClusterError, OrchestratorError, UserError
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.records import Chunk, DecodeRequest, FinishReason

__all__ = ["SearchController"]


class SearchController:
    """Decodes requests on a pool of verifiers; all methods belong to one event loop.

    Args:
        start_verifier: starts one verifier and waits for it, within deadlines of its own.
        n_verifiers: how many to keep, None for as many as there is room for.
        on_tokens: called with the number of tokens whenever some arrive.
        survey: looks at the cluster: nodes come and go.

    Attributes:
        failure: why nothing can be decoded any more, None while something can.
    """

    def __init__(
        self,
        start_verifier: StartVerifier,
        n_verifiers: int | None,
        on_tokens: Callable[[int], None] = lambda n_tokens: None,
        survey: SurveyCluster | None = None,
    ) -> None:
        self.failure: OrchestratorError | None = None
        self._on_tokens = on_tokens
        self._queue = PendingQueue()
        self._pool = VerifierPool(
            start_verifier,
            n_verifiers,
            survey,
            serve=self._serve,
            on_lost=self._go_on_elsewhere,
            on_settled=self._end_unservable,
        )
        self._arrivals = 0

    async def start(self) -> None:
        """Start verifiers; returns when those that have found a place are at work. Others join when they find one.

        Raises:
            TargetError: the target model cannot be served.
            ClusterError: no verifier found a place, or one did not load in time.
            WorkerLostError: several died while they loaded.
        """
        try:
            await self._pool.start()
        except BaseException:
            await self._pool.close()
            raise

    @property
    def window(self) -> int:
        """Candidates that the verifiers hold at most."""
        return sum(link.window for link in self._pool.takers)

    @property
    def descriptions(self) -> list[VerifierDescription]:
        """The verifiers at work."""
        return [link.verifier.description for link in self._pool.links]

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of every verifier that was ever at work, by worker."""
        return dict(self._pool.fingerprints)

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
        for link in self._pool.links:
            link.cancel(candidate)

    async def close_scope(self, scope: str) -> None:
        """Have every verifier forget the draft statistics of a scope."""
        closing = (link.verifier.close_scope(scope) for link in self._pool.links)
        await asyncio.gather(*closing, return_exceptions=True)  # a lost verifier has forgotten them already

    async def statistics(self) -> dict[str, float]:
        """Return the sum of the verifiers' counters; one that was lost or does not answer is left out."""
        return await self._pool.statistics()

    async def routing_reports(self) -> list[RoutingReport]:
        """Return what the verifiers' drafters did since they were asked last; one that does not answer is left out."""
        asking = (link.verifier.routing_report() for link in self._pool.links)
        answers = await asyncio.gather(*asking, return_exceptions=True)
        return [answer for answer in answers if isinstance(answer, RoutingReport)]

    async def change_drafter(self, change: DrafterChange) -> None:
        """Have every verifier draft with changed drafters; one that is lost or late is not waited for.

        Raises:
            UserError: they do not suit the run.
        """
        changing = (link.verifier.change_drafter(change) for link in self._pool.links)
        for answer in await asyncio.gather(*changing, return_exceptions=True):
            if isinstance(answer, UserError):
                raise answer

    async def close(self) -> None:
        """End open candidates as `cancelled` and stop the verifiers."""
        self._fail(ClusterError("the orchestrator is closed"), FinishReason.CANCELLED)
        await self._pool.close()

    def _enqueue(self, candidate: LiveCandidate) -> None:
        self._queue.push(candidate)
        self._wake()

    def _wake(self) -> None:
        for link in self._pool.links:
            link.has_work.set()

    async def _serve(self, link: VerifierLink) -> None:
        """Work with a verifier until it is relieved and has given back what it held."""
        while link.is_busy or not link.is_relieved:
            self._fill(link)
            if link.is_busy:
                for chunk in await self._exchange(link):
                    self._receive(link, chunk)
            else:
                link.has_work.clear()
                await link.has_work.wait()

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
        takers = self._pool.takers
        if link not in takers:
            return
        n_open = len(self._queue) + sum(len(other.live) for other in self._pool.links)
        share = math.ceil(n_open / len(takers))
        has_taken = False
        while link.has_room(share):
            candidate = self._queue.pop_for(link, takers, share)
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
        is_given_back = (
            link.is_relieved and chunk.finish_reason is FinishReason.CANCELLED and not candidate.is_cancelled
        )
        try:
            n_tokens = candidate.receive(replace(chunk, finish_reason=None) if is_given_back else chunk)
        except ValueError as error:
            link.cancel(candidate)
            candidate.finish(FinishReason.ERROR, f"{candidate.worker}: {error}")
        else:
            self._on_tokens(n_tokens)
            candidate.on_tokens(n_tokens)
        if candidate.decoded.done() or is_given_back:
            link.drop(chunk.candidate_id)
        if not candidate.decoded.done() and is_given_back:
            candidate.leave_worker(is_lost=False)
            self._enqueue(candidate)
        elif chunk.finish_reason not in (None, FinishReason.CANCELLED, FinishReason.ERROR):
            self._pool.note_success(link)

    def _go_on_elsewhere(self, link: VerifierLink, error: Exception) -> None:
        """Queue what a lost verifier held."""
        for candidate in link.live.values():
            candidate.leave_worker(is_lost=True)
            if candidate.is_cancelled:
                candidate.finish(FinishReason.CANCELLED)
            elif candidate.n_lost_workers >= TRIES:
                candidate.finish(
                    FinishReason.ERROR, f"{candidate.n_lost_workers} workers were lost under it, at last: {error}"
                )
            else:
                self._enqueue(candidate)

    def _end_unservable(self, reason: Exception) -> None:
        """Give up what no verifier at work can go on with; none is on its way."""
        if not self._pool.links:
            self._fail(ClusterError(f"no verifier is left: {reason}"), FinishReason.ERROR)
        fingerprints = {link.fingerprint for link in self._pool.links}
        for candidate in self._queue.pop_all_but(fingerprints):
            candidate.finish(
                FinishReason.ERROR, f"no worker with fingerprint {candidate.fingerprint} is left: {reason}"
            )

    def _fail(self, failure: OrchestratorError, end: FinishReason) -> None:
        self.failure = self.failure or failure
        for candidate in self._queue.pop_all_but(()):
            candidate.finish(end, str(failure))
        for link in self._pool.links:
            for candidate in link.live.values():
                candidate.finish(end, str(failure))
