"""The verifiers that there are: started where there is room, watched, replaced when lost, relieved before their node leaves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from tts_orch.actors._cluster_nodes import Survey
from tts_orch.actors._staffing import Staffing
from tts_orch.actors._verifier_link import Verifier, VerifierLink
from tts_orch.errors import OutOfMemoryError, PlacementError, TargetError, WorkerLostError, first_line

__all__ = ["StartVerifier", "SurveyCluster", "VerifierPool"]

logger = logging.getLogger(__name__)

Result = TypeVar("Result")

StartVerifier: TypeAlias = Callable[[asyncio.Event, int], Awaitable[Verifier]]
"""Starts a verifier within deadlines of its own. It sets the event once it has found a place and only loads; the number
says how many verifiers were lost for want of memory."""
SurveyCluster: TypeAlias = Callable[[], Awaitable[Survey]]

_LOOK_EVERY_S: Final = 2.0


class VerifierPool:
    """Keeps verifiers at work; all methods belong to one event loop.

    Args:
        start_verifier: starts one.
        n_wanted: how many to keep, None for as many as there is room for.
        survey: looks at the cluster; None if there is nothing to see.
        serve: works with a verifier until it is relieved and holds nothing, or raises: then it is lost.
        on_lost: called with a lost verifier, which is out of the pool, and the reason.
        on_settled: called with the reason when something failed and no verifier is on its way.

    Attributes:
        links: the verifiers at work.
    """

    def __init__(
        self,
        start_verifier: StartVerifier,
        n_wanted: int | None,
        survey: SurveyCluster | None,
        *,
        serve: Callable[[VerifierLink], Coroutine[Any, Any, None]],
        on_lost: Callable[[VerifierLink, Exception], None],
        on_settled: Callable[[Exception], None],
    ) -> None:
        self.links: list[VerifierLink] = []
        self._start_verifier = start_verifier
        self._survey = survey
        self._serve = serve
        self._on_lost = on_lost
        self._on_settled = on_settled
        self._staffing = Staffing(n_wanted)
        self._model: tuple[str, ...] | None = None
        self._fingerprints: dict[str, str] = {}
        self._counted: Counter[str] = Counter()
        self._starting: dict[asyncio.Event, asyncio.Task[Exception | None]] = {}  # by the event of having found a place
        self._tasks: set[asyncio.Task[Any]] = set()
        self._n_out_of_memory = 0
        self._is_closed = False

    async def start(self) -> None:
        """Start verifiers; returns when all that have found a place are at work, one at least.

        Raises:
            TargetError: the target model cannot be served.
            PlacementError: there was no place for any of them.
            ClusterError: one did not load in time.
            WorkerLostError: several died while they loaded.
        """
        n_with_room = await self._look_around()
        self._hire()
        n_expected = len(self._starting) if n_with_room is None else max(min(n_with_room, len(self._starting)), 1)
        while waiting := self._worth_waiting_for(n_expected):
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for failure in filter(None, (task.result() for task in done)):
                n_expected -= 1
                is_hopeless = not self.links and not self._starting
                if is_hopeless or not isinstance(failure, (PlacementError, WorkerLostError)):
                    raise failure
        if self._starting:
            logger.warning("%d verifiers have no place yet; they join when they find one", len(self._starting))

    def _worth_waiting_for(self, n_expected: int) -> list[asyncio.Task[Exception | None]]:
        """Return the verifiers on their way that the first work should wait for: those that load, or have room to."""
        lacks_some = len(self.links) < max(n_expected, 1)
        return [task for placed, task in self._starting.items() if lacks_some or placed.is_set()]

    async def _look_around(self) -> int | None:
        """Begin to watch the cluster; returns how many verifiers it has room for now, None if that is not known."""
        if self._survey is None:
            return None
        seen = await self._survey()
        self._staffing.heed(seen)
        self._spawn(self._watch(self._survey))
        return seen.n_free_places

    @property
    def takers(self) -> list[VerifierLink]:
        """The verifiers that new work goes to: those whose node stays, where there are any."""
        return [link for link in self.links if not link.is_leaving] or self.links

    @property
    def fingerprints(self) -> dict[str, str]:
        """Fingerprint of every verifier that was ever at work, by worker."""
        return self._fingerprints

    def note_success(self, link: VerifierLink) -> None:
        """Take note that a verifier has brought a candidate to its end."""
        if not link.is_useful:
            link.is_useful = True
            self._staffing.note_success()

    async def statistics(self) -> dict[str, float]:
        """Return the sum of the verifiers' counters, relieved ones included; one that does not answer is left out."""
        answers = await asyncio.gather(*(link.verifier.statistics() for link in self.links), return_exceptions=True)
        total = Counter(self._counted)
        for answer in answers:
            if not isinstance(answer, BaseException):
                total.update(answer)
        return dict(total)

    async def close(self) -> None:
        """Stop the verifiers, and those on their way."""
        self._is_closed = True
        await _cancel_all([*self._tasks, *self._starting.values()])
        await asyncio.gather(*(link.verifier.close() for link in self.links))
        self.links.clear()

    def _hire(self) -> None:
        n_staying = sum(not link.is_leaving for link in self.links)
        n_more = 0 if self._is_closed else self._staffing.n_to_start(n_staying, len(self._starting))
        for _ in range(n_more):
            placed = asyncio.Event()
            self._starting[placed] = asyncio.ensure_future(self._bring_in(placed))

    async def _bring_in(self, placed: asyncio.Event) -> Exception | None:
        """Start a verifier and set it to work; returns why it came to nothing, None if it did not."""
        try:
            verifier = await self._start_verifier(placed, self._n_out_of_memory)
            self._check_model(verifier)
        except Exception as error:
            del self._starting[placed]
            self._do_without(error)
            return error
        del self._starting[placed]
        self.links.append(link := VerifierLink(verifier))
        self._relieve_leaving()
        self._spawn(self._employ(link))
        return None

    def _check_model(self, verifier: Verifier) -> None:
        description = verifier.description
        self._model = self._model or description.model
        if description.model != self._model:
            verifier.kill()
            raise TargetError(
                f"worker {description.worker} has another model than the first one, by weights, tokenizer or type; give "
                "all nodes the same one (--ship-target does)"
            )
        self._fingerprints[description.worker] = description.fingerprint

    def _do_without(self, failure: Exception) -> None:
        if isinstance(failure, PlacementError):
            self._staffing.note_no_place()
            logger.info("a verifier finds no place: %s", failure)
        else:
            logger.log(
                logging.WARNING if self.links else logging.INFO, "a verifier did not start: %s", first_line(failure)
            )
            self._staffing.note_failure()
            self._n_out_of_memory += isinstance(failure, OutOfMemoryError)
        if self.links or not isinstance(failure, PlacementError):
            self._hire()
        self._settle(failure)

    def _settle(self, reason: Exception) -> None:
        if not self._starting and not self._is_closed:
            self._on_settled(reason)

    async def _employ(self, link: VerifierLink) -> None:
        try:
            await self._serve(link)
        except Exception as error:  # whatever it was, the verifier's answers can no longer be relied on
            self._lose(link, error)
        else:
            await self._retire(link)

    def _lose(self, link: VerifierLink, error: Exception) -> None:
        worker = link.verifier.description.worker
        logger.warning("verifier %s is lost: %s; its %d candidates go on elsewhere", worker, error, len(link.live))
        self.links.remove(link)
        link.verifier.kill()
        self._on_lost(link, error)
        self._staffing.note_loss(link.is_useful)
        self._n_out_of_memory += isinstance(error, OutOfMemoryError)
        self._hire()
        self._settle(error)

    async def _retire(self, link: VerifierLink) -> None:
        logger.info("verifier %s is relieved before its node leaves", link.verifier.description.worker)
        self.links.remove(link)
        with contextlib.suppress(Exception):  # its node may be gone by now
            self._counted.update(await link.verifier.statistics())
        await link.verifier.close()
        self._settle(WorkerLostError("the node of the last one left"))

    async def _watch(self, survey: SurveyCluster) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self._heed(await survey())
            except Exception as error:  # what the cluster has is not worth a run
                logger.debug("the cluster cannot be looked at: %s", first_line(error))

    def _heed(self, survey: Survey) -> None:
        self._staffing.heed(survey)
        for link in self.links:
            if link.verifier.description.node in survey.leaving and not link.is_leaving:
                link.is_leaving = True
                logger.warning("the node of verifier %s is about to leave", link.verifier.description.worker)
        self._relieve_leaving()
        self._hire()

    def _relieve_leaving(self) -> None:
        """Take the work of those that leave from them, once another can go on with it."""
        staying = {link.fingerprint for link in self.links if not link.is_leaving}
        for link in self.links:
            can_go = link.fingerprint in staying or (staying and not link.live)
            if link.is_leaving and can_go and not link.is_relieved:
                link.relieve()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _cancel_all(tasks: Iterable[asyncio.Future[Result]]) -> None:
    """Cancel what still runs, and wait for its end."""
    waiting = list(tasks)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
