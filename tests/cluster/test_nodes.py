"""Nodes come, are drained and die in the middle of a run: the same answers and tokens as if nothing had happened."""

from __future__ import annotations

import functools
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Nodes, wait_until
from tests.toys import save_toy
from tests.toys_decoder import expected_output, toy_engine
from tts_orch.config import EngineConfig, LawConfig, MajorityVote, PlacementConfig
from tts_orch.errors import PlacementError
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Problem, SearchResult
from tts_orch.seeds import trajectory_seed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

N = 8
LAW = LawConfig(max_new_tokens=80)
PROMPT = "seven"


def truth(problem_id: str) -> list[list[int]]:
    seeds = [trajectory_seed(3, problem_id, [i]) for i in range(N)]
    return [expected_output(seed, len(PROMPT), LAW.max_new_tokens) for seed in seeds]


def problems(last: threading.Event | None = None) -> Iterator[Problem]:
    """Yield problems until somebody says that it is enough, and some more."""
    n_more = 8
    for number in itertools.count():
        n_more -= last is None or last.is_set()
        if n_more < 0:
            return
        yield Problem(str(number), PROMPT)


def orchestrator(workers: int | None = None, device: str = "cpu", **placement: Any) -> Orchestrator:
    return Orchestrator(
        "toy",
        workers=workers,
        device=device,
        placement=PlacementConfig(**placement),
        max_batch=4,
        make_engine=functools.partial(toy_engine, delay_s=0.05),
    )


def answers(session: Orchestrator, asked: Iterable[Problem]) -> list[SearchResult]:
    return sorted(
        session.search_many(asked, MajorityVote(n=N), seed=3, law=LAW), key=lambda result: int(result.problem_id)
    )


def disturbed(session: Orchestrator, disturb: Callable[[], Any], has_settled: Callable[[], bool]) -> list[SearchResult]:
    """Search, let something happen, and go on until its effect is there; Ray starts nodes in the main thread only."""
    last = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        searching = pool.submit(answers, session, problems(last))
        try:
            wait_until(lambda: session.statistics().get("committed_tokens", 0) > 100)
            disturb()
            wait_until(has_settled)
        finally:
            last.set()
        return searching.result()


def check(results: list[SearchResult]) -> int:
    """Compare every token with what its seed says; returns how many there are."""
    assert [int(result.problem_id) for result in results] == list(range(len(results)))
    for result in results:
        assert [list(candidate.token_ids) for candidate in result.candidates] == truth(result.problem_id)
        assert result.generated_tokens == sum(map(len, truth(result.problem_id)))
    return sum(result.generated_tokens for result in results)


def places(session: Orchestrator) -> Counter[str]:
    return Counter(worker.node for worker in session.workers)


def workers_of(results: list[SearchResult]) -> set[str]:
    return {candidate.worker for result in results for candidate in result.candidates}


def test_a_node_that_dies_costs_no_token(nodes: Nodes) -> None:
    nodes.set_to(2)
    dying = nodes.others[0].node_id
    with orchestrator() as session:
        assert len(places(session)) == 3
        results = disturbed(session, lambda: nodes.kill(dying), lambda: dying not in places(session))
        undisturbed = answers(session, [Problem(result.problem_id, PROMPT) for result in results])
    check(results)
    assert [result.answer for result in results] == [result.answer for result in undisturbed]
    assert [result.votes for result in results] == [result.votes for result in undisturbed]


@pytest.mark.slow
def test_a_node_that_dies_costs_no_token_of_a_real_model(nodes: Nodes, tmp_path: Path) -> None:
    nodes.set_to(2)
    dying = nodes.others[0].node_id
    engine = EngineConfig(target=str(save_toy(tmp_path)), device="cpu", max_batch=4, kv_memory_gib=0.05)
    with Orchestrator(engine=engine, template="raw") as session:
        results = disturbed(session, lambda: nodes.kill(dying), lambda: dying not in places(session))
        undisturbed = answers(session, [Problem(result.problem_id, PROMPT) for result in results])
        statistics = session.statistics()
    assert len({candidate.fingerprint for result in results for candidate in result.candidates}) == 1
    assert statistics["committed_tokens"] > statistics["verify_steps"]  # drafts were accepted
    for result, expected in zip(results, undisturbed, strict=True):
        assert [candidate.token_ids for candidate in result.candidates] == [
            candidate.token_ids for candidate in expected.candidates
        ]
        assert (result.answer, result.generated_tokens) == (expected.answer, expected.generated_tokens)


def test_a_node_that_joins_takes_part(nodes: Nodes) -> None:
    nodes.set_to(1)
    with orchestrator() as session:
        first = {worker.worker for worker in session.workers}
        assert len(first) == 2
        results = disturbed(session, nodes.add, lambda: len(places(session)) == 3)
    check(results)
    assert workers_of(results) > first


def test_a_node_that_is_drained_gives_back_all_it_has_decoded(nodes: Nodes, caplog: pytest.LogCaptureFixture) -> None:
    nodes.set_to(2)
    leaving = nodes.others[1].node_id
    with orchestrator() as session, caplog.at_level(logging.INFO):
        results = disturbed(session, lambda: nodes.drain(leaving), lambda: leaving not in places(session))
        nodes.kill(leaving)
        n_tokens = check(results)
        assert session.statistics()["committed_tokens"] == n_tokens  # none was decoded twice, none is missing
    assert "is about to leave" in caplog.text
    assert "is lost" not in caplog.text


def test_a_run_starts_with_the_workers_that_find_room(nodes: Nodes) -> None:
    nodes.set_to(1)
    with orchestrator(workers=3, cpus_per_worker=1) as session:
        assert len(session.workers) == 2
        nodes.add()
        wait_until(lambda: len(places(session)) == 3)
        check(answers(session, problems()))


def test_verifiers_share_gpus_one_to_each_share(nodes: Nodes) -> None:
    nodes.set_to(2)
    with orchestrator(device="auto", gpus_per_worker=0.5, cpus_per_worker=0.5) as session:
        wait_until(lambda: places(session) == {node.node_id: 2 for node in nodes.others})
    with orchestrator(device="auto") as session:
        wait_until(lambda: places(session) == {node.node_id: 1 for node in nodes.others})


def test_what_fits_nowhere_is_explained(nodes: Nodes) -> None:
    nodes.set_to(1)
    with pytest.raises(PlacementError, match=r"CPU: want 2, have 2, free 2, at most 1 on one node\); see `ray status`"):
        orchestrator(cpus_per_worker=2, place_within_s=1)
