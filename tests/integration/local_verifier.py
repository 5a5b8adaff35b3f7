"""Verifiers in the event loop of the test, and searches over them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from tests.toys_decoder import MAX_CONTEXT, ToyDecoder, ToyTokenizer
from tts_orch.actors._drafter_change import DrafterChange
from tts_orch.actors._open_scopes import OpenScopes
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import Rewards, SearchPlan, SearchServices, VolatileJournal
from tts_orch.actors.search_runner import search
from tts_orch.actors.target_verifier import VerifierDescription
from tts_orch.config import DraftingConfig, MajorityVote
from tts_orch.errors import ClusterError, WorkerLostError
from tts_orch.policies.drafting.scopes import ScopeNames
from tts_orch.policies.routing.report import RoutingReport
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.majority_vote import majority_vote
from tts_orch.records import Candidate, Chunk, DecodeRequest, IntArray, Problem, SamplingParams, SearchResult
from tts_orch.tasks.answers import classes_for
from tts_orch.tasks.task import Extraction

LAW = SamplingParams(max_new_tokens=60)
Fault = Callable[[int], str | None]


class LocalVerifier:
    """A verifier stepped in the event loop; `fault(call number)` names what goes wrong in a call.

    "lose": everything is done but the reply is lost; "die": it ends in the middle of the call; "silent": no reply;
    "frozen": no reply, and no answer to a ping after it.
    """

    def __init__(
        self,
        name: str,
        fault: Fault = lambda call: None,
        capacity: int = 4,
        fingerprint: str = "f",
        weights: str = "w",
        node: str = "",
    ) -> None:
        self.description = VerifierDescription(
            name, fingerprint, weights, "t", "bitwise", "float32", capacity, MAX_CONTEXT, ToyTokenizer(), node
        )
        self.decoder = ToyDecoder(capacity=capacity)
        self.submitted: list[str] = []
        self.requests: list[DecodeRequest] = []
        self.cancelled: list[str] = []
        self.changes: list[DrafterChange] = []
        self.closed_scopes: list[str] = []
        self.is_dead = False
        self.is_frozen = False
        self.was_closed = False
        self._fault = fault
        self.n_calls = 0
        self._chunks: list[Chunk] = []

    async def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
    ) -> tuple[int, list[Chunk]]:
        await asyncio.sleep(0)
        self.n_calls += 1
        fault = self._fault(self.n_calls)
        if fault == "die":
            self.is_dead = True
        if self.is_dead:
            raise WorkerLostError(f"{self.description.worker} died")
        self.is_frozen = fault == "frozen"
        if fault in ("silent", "frozen"):
            raise TimeoutError("no reply")
        self._take(submit, cancel)
        self._chunks.extend(self.decoder.step())
        if fault == "lose":
            raise TimeoutError("no reply")
        return len(self._chunks), self._chunks[acknowledged:]

    def _take(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        for request in submit:
            if request.candidate_id not in self.submitted:
                self.submitted.append(request.candidate_id)
                self.requests.append(request)
                self.decoder.submit(request)
        for candidate_id in cancel:
            self.cancelled.append(candidate_id)
            self.decoder.cancel(candidate_id)

    async def order(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        await asyncio.sleep(0)
        if self.is_dead:
            raise WorkerLostError(f"{self.description.worker} died")
        if self.is_frozen:
            raise TimeoutError("no reply")
        self._take(submit, cancel)

    async def ping(self) -> None:
        if self.is_dead:
            raise WorkerLostError("dead")
        if self.is_frozen:
            raise TimeoutError("no answer")

    async def statistics(self) -> dict[str, float]:
        return self.decoder.statistics()

    async def routing_report(self) -> RoutingReport:
        return self.decoder.routing_report()

    async def change_drafter(self, change: DrafterChange) -> None:
        self.changes.append(change)

    async def close_scope(self, scope: str) -> None:
        self.closed_scopes.append(scope)

    async def close(self) -> None:
        self.was_closed = True

    def kill(self) -> None:
        self.is_dead = True


def tokenise(problem: Problem) -> IntArray:
    return np.arange(1, len(problem.prompt or "") + 1, dtype=np.int32)


def extract(problem: Problem, text: str) -> Extraction:
    return Extraction(text.split()[-1] if text else None)


def encode(text: str) -> IntArray:
    return np.array([ord(character) % 41 for character in text], np.int32)


def services_of(
    controller: SearchController,
    on_candidate: Callable[[Candidate], None] = lambda c: None,
    rewards: Rewards | None = None,
    **drafting: Any,
) -> SearchServices:
    scopes = OpenScopes(ScopeNames(DraftingConfig(**drafting), "w", "t"), controller.close_scope)
    decode = ToyTokenizer().decode
    return SearchServices(controller, scopes, tokenise, encode, decode, extract, classes_for, on_candidate, rewards)


def plan_of(n: int, **options: Any) -> SearchPlan:
    async def policy(problem: Problem, context: SearchContext) -> SearchResult:
        return await majority_vote(problem, context, MajorityVote(n=n))

    return SearchPlan(**{"policy": policy, "n": n, "law": LAW, "seed": 5, "journal": VolatileJournal(), **options})


def factory(*verifiers: LocalVerifier | Exception) -> Callable[[asyncio.Event, int], Awaitable[LocalVerifier]]:
    waiting = iter(verifiers)

    async def start(placed: asyncio.Event, n_out_of_memory: int) -> LocalVerifier:
        placed.set()
        await asyncio.sleep(0)
        verifier = next(waiting, ClusterError("no more verifiers"))
        if isinstance(verifier, Exception):
            raise verifier
        return verifier

    return start


async def searched(
    problem: Problem,
    plan: SearchPlan,
    *verifiers: LocalVerifier | Exception,
    n_started: int = 1,
    services: Callable[[SearchController], SearchServices] | None = None,
) -> SearchResult:
    """Search one problem with the first `n_started` verifiers; the rest are replacements."""
    controller = SearchController(factory(*verifiers), n_started)
    await controller.start()
    try:
        return await search(problem, 0, plan, (services or services_of)(controller))
    finally:
        await controller.close()


def at(*calls: int, fault: str) -> Fault:
    return lambda call: fault if call in calls else None


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))
