"""Verifiers that join late, leave in time, find no place or load another model, in the event loop of the test."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.local_verifier import LAW, Fault, LocalVerifier, at, plan_of, run, services_of, tokenise
from tests.toys_decoder import expected_output
from tts_orch.actors import _verifier_pool
from tts_orch.actors._cluster_nodes import Survey
from tts_orch.actors._ray_verifier import _sparing
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_runner import search
from tts_orch.config import EngineConfig
from tts_orch.errors import ClusterError, OutOfMemoryError, PlacementError, TargetError, WorkerLostError
from tts_orch.records import DecodeRequest, FinishReason, Problem, SearchResult
from tts_orch.seeds import trajectory_seed

pytestmark = pytest.mark.timeout(60)

NO_PLACE = PlacementError("no place for an actor within 120 s")


@pytest.fixture(autouse=True)
def _look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_verifier_pool, "_LOOK_EVERY_S", 0.01)


class FakeCluster:
    """Gives verifiers a place when the test says so.

    Attributes:
        survey: what the controller sees.
        asked: how many verifiers were lost for want of memory, for each verifier that was asked for.
    """

    def __init__(self, *nodes: str, n_free_places: int = 0) -> None:
        self.asked: list[int] = []
        self._places: asyncio.Queue[LocalVerifier | Exception] = asyncio.Queue()
        self.see(*nodes, n_free_places=n_free_places)

    def see(self, *nodes: str, leaving: Sequence[str] = (), n_free_places: int = 0) -> None:
        self._survey = Survey(frozenset(nodes), frozenset(leaving), n_free_places)

    def give(self, *verifiers: LocalVerifier | Exception) -> None:
        for verifier in verifiers:
            self._places.put_nowait(verifier)

    async def start_verifier(self, placed: asyncio.Event, n_out_of_memory: int) -> LocalVerifier:
        self.asked.append(n_out_of_memory)
        found = await self._places.get()
        if isinstance(found, Exception):
            raise found
        placed.set()
        await asyncio.sleep(0)
        return found

    async def survey(self) -> Survey:
        return self._survey

    @asynccontextmanager
    async def controller(self, n_verifiers: int | None) -> AsyncIterator[SearchController]:
        controller = SearchController(self.start_verifier, n_verifiers, survey=self.survey)
        await controller.start()
        try:
            yield controller
        finally:
            await controller.close()


async def solved(controller: SearchController, n: int = 9) -> SearchResult:
    return await search(Problem("p", "prompt"), 0, plan_of(n), services_of(controller))


def outputs(result: SearchResult) -> list[list[int]]:
    return [list(candidate.token_ids) for candidate in result.candidates]


def truth(n: int = 9) -> list[list[int]]:
    seeds = [trajectory_seed(5, "p", [i]) for i in range(n)]
    return [expected_output(seed, len("prompt"), LAW.max_new_tokens) for seed in seeds]


def after(n_calls: int, happens: Callable[[], None]) -> Fault:
    """Return a fault that is none: at a call it lets something happen."""

    def fault(call: int) -> None:
        if call == n_calls:
            happens()

    return fault


async def names(controller: SearchController, *expected: str) -> None:
    """Wait until these verifiers are at work."""
    while sorted(worker.worker for worker in controller.descriptions) != sorted(expected):
        await asyncio.sleep(0.01)


# ---- joining


def test_a_run_starts_with_those_that_find_room_and_takes_in_the_others() -> None:
    async def scenario() -> None:
        cluster, late = FakeCluster("n", n_free_places=1), LocalVerifier("late")
        cluster.give(LocalVerifier("first", after(3, lambda: cluster.give(late))))
        async with cluster.controller(3) as controller:
            assert len(cluster.asked) == 3
            assert outputs(await solved(controller)) == truth()
            assert late.submitted
            assert controller.fingerprints == {"first": "f", "late": "f"}

    run(scenario())


def test_without_a_number_verifiers_take_what_room_there_is_and_no_more() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=2)
        cluster.give(LocalVerifier("a"), LocalVerifier("b"))
        async with cluster.controller(None) as controller:
            cluster.see("n")
            await names(controller, "a", "b")
            await asyncio.sleep(0.05)
            assert len(cluster.asked) == 2
            cluster.see("n", "m", n_free_places=1)
            cluster.give(LocalVerifier("c"))
            await names(controller, "a", "b", "c")

    run(scenario())


def test_without_room_one_verifier_is_waited_for() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n")
        cluster.give(LocalVerifier("a"))
        async with cluster.controller(None) as controller:
            assert len(cluster.asked) == 1
            assert outputs(await solved(controller)) == truth()

    run(scenario())


def test_where_nobody_finds_a_place_the_reason_is_raised() -> None:
    async def scenario(n_verifiers: int | None) -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(NO_PLACE, NO_PLACE)
        with pytest.raises(PlacementError, match="within 120 s"):
            async with cluster.controller(n_verifiers):
                pass

    run(scenario(2))
    run(scenario(None))


def test_who_finds_no_place_is_asked_for_again_while_others_work() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(LocalVerifier("a"))
        async with cluster.controller(2) as controller:
            cluster.give(*[NO_PLACE] * 6, LocalVerifier("b"))  # more often than a failure would be
            await names(controller, "a", "b")

    run(scenario())


def test_a_place_that_brings_failures_only_is_left_alone_until_a_node_joins() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(LocalVerifier("a"))
        async with cluster.controller(2) as controller:
            cluster.give(*[TargetError("/model: there is no model here")] * 4, LocalVerifier("b"))
            await asyncio.sleep(0.1)
            await names(controller, "a")
            cluster.see("n", "m")
            await names(controller, "a", "b")

    run(scenario())


def test_another_model_of_the_same_name_is_refused() -> None:
    async def scenario() -> None:
        cluster, other = FakeCluster("n", n_free_places=2), LocalVerifier("b", weights="x")
        cluster.give(LocalVerifier("a"), other)
        with pytest.raises(TargetError, match="worker b has another model"):
            async with cluster.controller(2):
                pass
        assert other.is_dead
        cluster, other = FakeCluster("n", n_free_places=1), LocalVerifier("b", weights="x")
        cluster.give(LocalVerifier("a"))
        async with cluster.controller(2) as controller:
            cluster.give(other)
            assert outputs(await solved(controller)) == truth()
            assert not other.submitted

    run(scenario())


# ---- leaving


def test_a_drained_verifier_gives_back_every_token(caplog: pytest.LogCaptureFixture) -> None:
    n = 60  # work for longer than it takes to notice

    async def scenario() -> None:
        cluster = FakeCluster("n", "m", n_free_places=2)

        def drain() -> None:
            cluster.see("n", "m", leaving=["m"])

        staying = LocalVerifier("stays", node="n")
        leaving = LocalVerifier("leaves", after(3, drain), node="m")
        cluster.give(staying, leaving)
        async with cluster.controller(None) as controller:
            result = await solved(controller, n)
            await names(controller, "stays")
            assert leaving.was_closed
            assert not leaving.is_dead
            moved = [request for request in staying.requests if len(request.token_ids) > request.prompt_length]
            assert moved
            assert all(request.attempt == 1 for request in moved)
            assert (await controller.statistics())["committed_tokens"] == sum(map(len, truth(n)))
        assert outputs(result) == truth(n)
        assert result.generated_tokens == sum(map(len, truth(n)))

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert "the node of verifier leaves is about to leave" in caplog.text
    assert "is lost" not in caplog.text


def test_the_last_one_works_on_until_another_can_take_over() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)

        def drain() -> None:
            cluster.see("n", leaving=["n"])

        replacement = LocalVerifier("b", node="m")
        leaving = LocalVerifier("a", after(2, drain), node="n")
        cluster.give(leaving)
        async with cluster.controller(1) as controller:
            searching = asyncio.ensure_future(solved(controller, n=30))
            while len(cluster.asked) < 2:
                await asyncio.sleep(0)
            assert not leaving.was_closed
            n_calls = leaving.n_calls
            while leaving.n_calls < n_calls + 3:
                await asyncio.sleep(0)
            cluster.give(replacement)
            assert outputs(await searching) == truth(30)
            await names(controller, "b")
            assert replacement.submitted

    run(scenario())


def test_what_nobody_else_can_go_on_with_stays_where_it_is() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", "m", n_free_places=2)

        def drain() -> None:
            cluster.see("n", "m", leaving=["m"])

        other = LocalVerifier("other", node="n", fingerprint="g")
        leaving = LocalVerifier("leaves", after(3, drain), node="m", fingerprint="f")
        cluster.give(other, leaving)
        async with cluster.controller(None) as controller:
            result = await solved(controller)
            await names(controller, "other")
        assert outputs(result) == truth()
        assert all(len(request.token_ids) == request.prompt_length for request in other.requests)

    run(scenario())


def test_a_node_that_dies_while_it_is_drained_costs_no_token() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", "m", n_free_places=2)

        def fault(call: int) -> str | None:
            if call == 2:
                cluster.see("n", "m", leaving=["m"])
            return "die" if leaving.cancelled else None

        leaving = LocalVerifier("leaves", fault, node="m")
        cluster.give(LocalVerifier("stays", node="n"), leaving)
        async with cluster.controller(None) as controller:
            assert outputs(await solved(controller)) == truth()
            await names(controller, "stays")

    run(scenario())


def test_a_candidate_that_is_cancelled_while_its_verifier_leaves_ends() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", "m", n_free_places=2)
        verifiers = [LocalVerifier("a", node="n"), LocalVerifier("b", node="m")]
        cluster.give(*verifiers)
        async with cluster.controller(None) as controller:
            prompt = tokenise(Problem("p", "prompt"))
            live = [controller.decode(DecodeRequest(str(i), prompt, 6, 40, LAW), "p", 0) for i in range(8)]
            while not all(verifier.submitted for verifier in verifiers):
                await asyncio.sleep(0)
            cluster.see("n", "m", leaving=["m"])
            await asyncio.sleep(0.02)
            for candidate in live:
                controller.cancel(candidate)
            ends = [(await candidate.decoded).chunk.finish_reason for candidate in live]
            assert set(ends) <= {FinishReason.CANCELLED, FinishReason.EOS, FinishReason.LENGTH}

    run(scenario())


# ---- losses


def test_memory_that_ran_out_is_told_to_those_that_follow() -> None:
    class Greedy(LocalVerifier):
        async def exchange(self, *arguments: Any) -> Any:
            raise OutOfMemoryError("worker lost for want of memory")

    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(Greedy("a"), Greedy("b"), LocalVerifier("c"))
        async with cluster.controller(1) as controller:
            assert outputs(await solved(controller)) == truth()
        assert cluster.asked == [0, 1, 2]

    run(scenario())
    config = EngineConfig(target="toy", max_batch=3, kv_memory_gib=2)
    sizes = [(_sparing(config, n).max_batch, _sparing(config, n).kv_memory_gib) for n in range(3)]
    assert sizes == [(3, 2), (1, 1), (1, 0.5)]


def test_verifiers_that_die_as_they_load_are_tried_again_and_then_reported() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(WorkerLostError("worker lost: a"), LocalVerifier("b"))
        async with cluster.controller(1) as controller:
            await names(controller, "b")
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(*[WorkerLostError("worker lost: again")] * 9)
        with pytest.raises(WorkerLostError, match="again"):
            async with cluster.controller(1):
                pass
        assert len(cluster.asked) == 4

    run(scenario())


def test_a_useful_verifier_that_is_lost_is_replaced_however_often() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(*(LocalVerifier(str(i), at(40, fault="die")) for i in range(12)))
        async with cluster.controller(1) as controller:
            assert outputs(await solved(controller, n=60)) == truth(60)
        assert len(cluster.asked) > 4

    run(scenario())


def test_a_loss_beyond_repair_ends_what_waits() -> None:
    async def scenario() -> None:
        cluster = FakeCluster("n", n_free_places=1)
        cluster.give(LocalVerifier("a", at(4, fault="die")), NO_PLACE)
        async with cluster.controller(None) as controller:
            cluster.see("n")
            await asyncio.sleep(0.05)
            with pytest.raises(ClusterError, match=r"no verifier is left: no place"):
                await solved(controller)

    run(scenario())
