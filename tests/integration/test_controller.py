"""The controller against verifiers in the same event loop, which lose replies, die and lie on demand."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.integration.local_verifier import (
    LAW,
    LocalVerifier,
    at,
    factory,
    plan_of,
    run,
    searched,
    services_of,
    tokenise,
)
from tests.toys_decoder import MAX_CONTEXT, ToyDecoder, expected_output, toy_engine
from tts_orch.actors import target_verifier
from tts_orch.actors._chunk_buffer import merge_chunks
from tts_orch.actors._engine_thread import EngineThread
from tts_orch.actors.cluster import cpus_each
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import (
    VolatileJournal,
)
from tts_orch.actors.search_runner import search, search_many
from tts_orch.actors.target_verifier import TargetVerifierCore
from tts_orch.config import EngineConfig
from tts_orch.errors import ClusterError, RunError, WorkerLostError
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import (
    Candidate,
    Chunk,
    DecodeRequest,
    FinishReason,
    Path,
    Problem,
    SamplingParams,
    SearchResult,
)
from tts_orch.seeds import trajectory_seed

pytestmark = pytest.mark.timeout(60)


class DictJournal(VolatileJournal):
    """Remembers candidates in memory."""

    def __init__(self) -> None:
        self.lines: list[Candidate] = []

    def finished(self, problem_id: str, path: Path, seed: int) -> Candidate | None:
        found = [c for c in self.lines if (c.problem_id, c.path, c.seed) == (problem_id, path, seed) and c.is_complete]
        return found[0] if found else None

    def record(self, candidate: Candidate) -> None:
        self.lines.append(candidate)


async def solve(*verifiers: LocalVerifier | Exception, n_started: int = 1, n: int = 9) -> SearchResult:
    """Search one problem with the first `n_started` verifiers; the rest are replacements."""
    return await searched(Problem("p", "prompt"), plan_of(n), *verifiers, n_started=n_started)


def outputs(result: SearchResult) -> list[list[int]]:
    return [list(candidate.token_ids) for candidate in result.candidates]


def truth(problem_id: str = "p", n: int = 9, prompt_length: int = len("prompt")) -> list[list[int]]:
    seeds = [trajectory_seed(5, problem_id, [i]) for i in range(n)]
    return [expected_output(seed, prompt_length, LAW.max_new_tokens) for seed in seeds]


def test_tokens_are_those_of_the_seeds() -> None:
    result = run(solve(LocalVerifier("a")))
    assert outputs(result) == truth()
    assert len({len(output) for output in truth()}) > 2  # candidates end at different times
    assert result.generated_tokens == sum(map(len, truth()))


def test_a_dead_worker_costs_no_token() -> None:
    dying, healthy = LocalVerifier("a", at(5, fault="die")), LocalVerifier("b")
    result = run(solve(dying, healthy, ClusterError("full"), n_started=2))
    assert outputs(result) == truth()
    assert {candidate.worker for candidate in result.candidates} >= {"b"}
    moved = [request for request in healthy.requests if len(request.token_ids) > request.prompt_length]
    assert moved, "nothing was resubmitted with the tokens received so far"
    assert all(request.statistics_from == len(request.token_ids) for request in moved)


def test_a_replacement_is_started_when_none_is_left() -> None:
    result = run(solve(LocalVerifier("a", at(4, fault="die")), LocalVerifier("b")))
    assert outputs(result) == truth()


@pytest.mark.parametrize("lost", [(1,), (2, 5, 6), tuple(range(1, 60, 2))])
def test_lost_replies_lose_and_double_nothing(lost: tuple[int, ...]) -> None:
    verifier = LocalVerifier("a", at(*lost, fault="lose"))
    result = run(solve(verifier))
    assert outputs(result) == truth()
    assert len(verifier.submitted) == len(set(verifier.submitted)) == 9


def test_chunks_that_arrive_again_are_dropped() -> None:
    class Repeater(LocalVerifier):
        async def exchange(
            self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
        ) -> tuple[int, list[Chunk]]:
            return await super().exchange(submit, cancel, 0)

    assert outputs(run(solve(Repeater("a")))) == truth()


def test_a_worker_that_answers_pings_only_is_replaced() -> None:
    silent = LocalVerifier("a", lambda call: "silent" if call >= 3 else None)
    result = run(solve(silent, LocalVerifier("b")))
    assert outputs(result) == truth()
    assert silent.is_dead


def test_a_worker_that_does_not_answer_a_ping_is_replaced_at_once() -> None:
    frozen = LocalVerifier("a", lambda call: "frozen" if call >= 3 else None)
    assert outputs(run(solve(frozen, LocalVerifier("b")))) == truth()
    assert frozen.n_calls == 3


def test_a_candidate_goes_on_only_with_its_own_fingerprint() -> None:
    dying = LocalVerifier("a", at(6, fault="die"), fingerprint="f")
    other = LocalVerifier("b", fingerprint="g")
    same = LocalVerifier("c", fingerprint="f")
    result = run(solve(dying, other, same, n_started=2))
    assert outputs(result) == truth()
    assert same.requests
    assert all(len(request.token_ids) == request.prompt_length for request in other.requests)


def test_without_its_fingerprint_a_begun_candidate_fails_and_the_others_go_on() -> None:
    dying = LocalVerifier("a", at(6, fault="die"), fingerprint="f")
    result = run(solve(dying, LocalVerifier("b", fingerprint="g"), ClusterError("full"), n_started=2))
    failed = [c for c in result.candidates if c.finish_reason is FinishReason.ERROR]
    assert failed
    assert all("fingerprint f" in candidate.message for candidate in failed)
    for candidate, expected in zip(result.candidates, truth(), strict=True):
        assert list(candidate.token_ids) == expected[: len(candidate.token_ids)]
        assert candidate.finish_reason is FinishReason.ERROR or len(candidate.token_ids) == len(expected)


def test_a_candidate_is_given_up_after_three_workers_and_the_run_when_no_more_may_be_started() -> None:
    async def scenario() -> tuple[list[str], SearchController]:
        dying = (LocalVerifier(str(i), lambda call: "die" if call > 1 else None) for i in range(9))
        controller = SearchController(factory(*dying), 1)
        await controller.start()
        messages = []
        for name in ("first", "second"):
            live = controller.decode(DecodeRequest(name, tokenise(Problem("p", "x")), 1, 40, LAW), "p", 0)
            decoded = await live.decoded
            assert decoded.chunk.finish_reason is FinishReason.ERROR
            messages.append(decoded.chunk.message)
        return messages, controller

    messages, controller = run(scenario())
    assert "3 workers were lost under it" in messages[0]
    assert "no verifier is left" in messages[1]
    assert isinstance(controller.failure, ClusterError)


def test_with_no_verifier_left_the_run_fails_with_the_reason() -> None:
    with pytest.raises(ClusterError, match=r"no verifier is left: .*no more verifiers"):
        run(solve(LocalVerifier("a", at(4, fault="die"))))


def test_a_chunk_out_of_place_is_an_error_not_a_wrong_text() -> None:
    class Liar(LocalVerifier):
        async def exchange(self, *arguments: Any) -> tuple[int, list[Chunk]]:
            sequence, chunks = await super().exchange(*arguments)
            return sequence, chunks[1:] if self.n_calls == 2 else chunks

    liar = Liar("a")
    result = run(solve(liar, n=3))
    assert len(liar.cancelled) == 1
    assert [c.finish_reason is FinishReason.ERROR for c in result.candidates].count(True) == 1
    assert "was due" in next(c.message for c in result.candidates if not c.is_complete)


def test_closing_a_sample_cancels_the_rest_and_counts_it() -> None:
    verifier = LocalVerifier("a")
    seen: list[Candidate] = []

    async def first_only(problem: Problem, context: SearchContext) -> SearchResult:
        async with aclosing(context.sample([await context.root(problem)], n=6)) as stream:
            candidate = await anext(stream)
        for _ in range(20):
            await asyncio.sleep(0)
        assert verifier.decoder.is_idle, "cancelled candidates still hold their places"
        return SearchResult(problem.id, "first_only", candidate.answer, [candidate])

    async def scenario() -> SearchResult:
        controller = SearchController(factory(verifier), 1)
        await controller.start()
        result = await search(
            Problem("p", "prompt"), 0, plan_of(1, policy=first_only), services_of(controller, seen.append)
        )
        await controller.close()
        return result

    result = run(scenario())
    assert len(verifier.cancelled) == len(set(verifier.cancelled))
    assert sorted(c.finish_reason for c in seen).count(FinishReason.CANCELLED) >= 4
    assert result.generated_tokens == sum(candidate.n_tokens for candidate in seen) == verifier.decoder.committed
    assert result.kept_tokens < result.generated_tokens


def test_if_one_verifier_does_not_start_the_others_are_ended() -> None:
    started = LocalVerifier("a"), LocalVerifier("b")
    controller = SearchController(factory(*started, ClusterError("full")), 3)
    with pytest.raises(ClusterError, match="full"):
        run(controller.start())
    assert all(verifier.was_closed for verifier in started)


def test_a_journal_that_cannot_be_written_is_reported_although_the_policy_did_not_wait_for_it() -> None:
    class Full(VolatileJournal):
        def record(self, candidate: Candidate) -> None:
            if candidate.finish_reason is FinishReason.CANCELLED:
                raise RunError("candidates.jsonl: No space left on device")

    async def first_only(problem: Problem, context: SearchContext) -> SearchResult:
        async with aclosing(context.sample([await context.root(problem)], n=6)) as stream:
            candidate = await anext(stream)
        return SearchResult(problem.id, "first_only", candidate.answer, [candidate])

    async def scenario() -> SearchResult:
        controller = SearchController(factory(LocalVerifier("a")), 1)
        await controller.start()
        try:
            plan = plan_of(6, policy=first_only, journal=Full())
            return await search(Problem("p", "prompt"), 0, plan, services_of(controller))
        finally:
            await controller.close()

    with pytest.raises(RunError, match="No space left"):
        run(scenario())


def test_lower_priority_numbers_go_first() -> None:
    verifier = LocalVerifier("a", capacity=1)

    async def scenario() -> None:
        controller = SearchController(factory(verifier), 1)
        await controller.start()
        prompt = tokenise(Problem("p", "prompt"))
        live = [
            controller.decode(DecodeRequest(str(i), prompt, 6, i, LAW, priority=priority), problem_id, 0)
            for i, (priority, problem_id) in enumerate(((2, "p"), (1, "q"), (0, "p"), (2, "p")))
        ]
        await asyncio.gather(*(one.decoded for one in live))
        await controller.close()

    run(scenario())
    assert [candidate_id[0] for candidate_id in verifier.submitted] == ["2", "1", "0", "3"]


def test_a_lone_problem_is_spread_over_all_workers() -> None:
    verifiers = LocalVerifier("a", capacity=16), LocalVerifier("b", capacity=16)
    assert outputs(run(solve(*verifiers, n_started=2, n=8))) == truth(n=8)
    assert [len(verifier.submitted) for verifier in verifiers] == [4, 4]


def test_samples_of_a_problem_stay_together_where_the_load_allows() -> None:
    verifiers = LocalVerifier("a"), LocalVerifier("b")

    async def scenario() -> None:
        controller = SearchController(factory(*verifiers), 2)
        await controller.start()
        problems = [Problem(str(i), "prompt") for i in range(24)]
        results = [r async for r in search_many(problems, plan_of(4), services_of(controller))]
        assert sorted(r.problem_id for r in results) == sorted(p.id for p in problems)
        await controller.close()

    run(scenario())
    homes = [{candidate_id.split("/")[0] for candidate_id in verifier.submitted} for verifier in verifiers]
    assert len(homes[0] & homes[1]) <= 14  # 23 if verifiers took what comes first
    assert min(len(verifier.submitted) for verifier in verifiers) >= 40  # of 96


def test_problems_advance_by_themselves_and_are_drawn_as_needed() -> None:
    drawn: list[str] = []

    def problems() -> Any:
        for i in range(200):
            drawn.append(str(i))
            yield Problem(str(i), "prompt")

    async def scenario() -> None:
        controller = SearchController(factory(LocalVerifier("a")), 1)
        await controller.start()
        async with aclosing(search_many(problems(), plan_of(2), services_of(controller))) as results:
            for _ in range(10):
                await anext(results)
        await controller.close()

    run(scenario())
    assert len(drawn) < 30


def test_journaled_candidates_are_not_decoded_again() -> None:
    journal = DictJournal()

    async def scenario(n: int) -> tuple[SearchResult, LocalVerifier]:
        verifier = LocalVerifier("a")
        controller = SearchController(factory(verifier), 1)
        await controller.start()
        result = await search(Problem("p", "prompt"), 0, plan_of(n, journal=journal), services_of(controller))
        await controller.close()
        return result, verifier

    run(scenario(4))
    result, verifier = run(scenario(9))
    assert outputs(result) == truth()
    assert len(verifier.submitted) == 5
    assert result.generated_tokens == sum(map(len, truth()))


def test_the_core_keeps_chunks_until_they_are_acknowledged() -> None:
    core = TargetVerifierCore(EngineConfig(target="toy"), toy_engine)
    core.load()
    request = DecodeRequest("c", np.ones(3, np.int32), 3, 40, LAW)
    first = _until_finished(core, [request])
    again = core.exchange([request], [], 0, 0.2)
    assert again[0] == first[0]
    assert [c.token_ids.tolist() for c in again[1]] == [c.token_ids.tolist() for c in first[1]]
    assert merge_chunks(again[1]).token_ids.tolist() == expected_output(40, 3, 60)
    assert core.exchange([], [], first[0], 0.05) == (first[0], [])
    too_long = DecodeRequest("d", np.ones(MAX_CONTEXT, np.int32), 3, 40, LAW)
    _, (refusal,) = core.exchange([too_long], [], first[0], 5.0)
    assert refusal.finish_reason is FinishReason.ERROR
    assert "too many" in refusal.message
    core.close()


def test_the_core_forgets_candidates_long_after_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_verifier, "_ENDED_REMEMBERED", 3)
    core = TargetVerifierCore(EngineConfig(target="toy"), toy_engine)
    core.load()
    requests = [DecodeRequest(str(i), np.ones(3, np.int32), 3, 40 + i, LAW) for i in range(9)]
    acknowledged = 0
    for request in requests:
        finished = False
        while not finished:
            acknowledged, chunks = core.exchange([request], [], acknowledged, 1.0)
            finished = any(chunk.finish_reason for chunk in chunks)
    assert core.exchange(requests[-1:], [], acknowledged, 0.3) == (acknowledged, [])  # an order that arrives late
    assert (len(core._live), list(core._ended)) == (0, ["6", "7", "8"])
    core.close()


def test_an_order_that_two_polls_bring_at_once_is_done_once() -> None:
    class Counting(ToyDecoder):
        submitted = 0

        def submit(self, request: DecodeRequest) -> None:
            self.submitted += 1
            super().submit(request)

    class SlowToHash(str):
        def __hash__(self) -> int:
            time.sleep(0.005)  # whoever looks the id up lets the other thread run
            return super().__hash__()

    decoder = Counting()
    core = TargetVerifierCore(EngineConfig(target="toy"), lambda *given: replace(toy_engine(*given), decoder=decoder))
    core.load()
    law = SamplingParams(max_new_tokens=3)
    request = DecodeRequest(SlowToHash("c"), np.ones(3, np.int32), 3, 40, law)
    polls = [threading.Thread(target=core.exchange, args=([request], [], 0, 0.0)) for _ in range(2)]
    for poll in polls:
        poll.start()
    for poll in polls:
        poll.join()
    _until_finished(core, [])
    assert decoder.submitted == 1
    core.close()


def _until_finished(core: TargetVerifierCore, submit: list[DecodeRequest]) -> tuple[int, list[Chunk]]:
    for _ in itertools.repeat(None, 100):
        reply = core.exchange(submit, [], 0, 1.0)
        if any(chunk.finish_reason for chunk in reply[1]):
            return reply
    raise AssertionError("the candidate never finished")


def test_an_engine_failure_is_raised_to_the_poll() -> None:
    class Broken(ToyDecoder):
        def step(self) -> list[Chunk]:
            raise RuntimeError("bad kernel")

    thread = EngineThread(Broken(), None)
    thread.submit(DecodeRequest("c", np.ones(3, np.int32), 3, 40, LAW))
    with pytest.raises(WorkerLostError, match="bad kernel"):
        thread.buffer.read(0, 5.0)


@pytest.mark.parametrize(
    ("nodes", "n_workers", "expected"),
    [([2.0], 1, 2), ([2.0], 2, 1), ([2.0], 3, 0.66), ([8.0, 8.0], 3, 4), ([8.0, 2.0], 2, 4), ([0.0, 4.0], 1, 4)],
)
def test_workers_share_the_cpus_of_the_nodes(nodes: list[float], n_workers: int, expected: float) -> None:
    assert cpus_each(nodes, n_workers) == expected
