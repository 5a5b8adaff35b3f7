"""The whole chain over a real Ray, with toy decoders."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.toys_decoder import expected_output, toy_engine
from tts_orch.actors import _ray_verifier
from tts_orch.actors._remote import remote
from tts_orch.config import EngineConfig, LawConfig, MajorityVote, PlacementConfig
from tts_orch.errors import ClusterError, ConfigError, PlacementError, StoreError, TargetError, WorkerLostError
from tts_orch.orchestrator import Orchestrator
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Problem, SearchResult
from tts_orch.seeds import trajectory_seed

pytestmark = [pytest.mark.timeout(90), pytest.mark.usefixtures("ray_session")]

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = Problem("p", "seven")
LAW = LawConfig(max_new_tokens=80)


def orchestrator(workers: int = 1, on_tokens: Any = lambda n: None, **decoder: Any) -> Orchestrator:
    make_engine = functools.partial(toy_engine, **decoder)
    return Orchestrator("toy", workers=workers, max_batch=8, make_engine=make_engine, on_tokens=on_tokens)


def truth(problem_id: str = "p", n: int = 12, seed: int = 3) -> list[list[int]]:
    seeds = [trajectory_seed(seed, problem_id, [i]) for i in range(n)]
    return [expected_output(trajectory, len("seven"), LAW.max_new_tokens) for trajectory in seeds]


def outputs(result: SearchResult) -> list[list[int]]:
    return [list(candidate.token_ids) for candidate in result.candidates]


def test_search_in_plain_code_and_from_a_running_loop() -> None:
    async def twins(session: Orchestrator) -> tuple[SearchResult, list[SearchResult]]:
        problems = [Problem(str(i), "seven") for i in range(5)]
        streamed = session.asearch_many(problems, MajorityVote(n=2), seed=3, law=LAW)
        one = asyncio.create_task(session.asearch(PROBLEM, MajorityVote(n=12), seed=3, law=LAW))
        return await one, [result async for result in streamed]

    with orchestrator() as session:
        result = session.search(PROBLEM, MajorityVote(n=12), seed=3, law=LAW)
        assert outputs(result) == truth()
        again, many = asyncio.run(twins(session))
        assert outputs(again) == truth()
        assert {result.problem_id: outputs(result) for result in many} == {str(i): truth(str(i), 2) for i in range(5)}
        assert session.search("seven", MajorityVote(n=1)).problem_id != session.search("seven").problem_id
        assert session.statistics()["committed_tokens"] > 0


def test_a_killed_worker_changes_no_token() -> None:
    killed: list[int] = []
    arrived = 0

    def kill_one(n_tokens: int) -> None:
        nonlocal arrived
        arrived += n_tokens
        if arrived > 40 and not killed:
            killed.append(int(session.workers[0].worker.partition(":")[2]))
            os.kill(killed[0], signal.SIGKILL)

    with orchestrator(workers=2, on_tokens=kill_one, delay_s=0.05) as session:
        result = session.search(PROBLEM, MajorityVote(n=12), seed=3, law=LAW)
        assert killed
        assert outputs(result) == truth()


def test_a_worker_that_dies_in_a_step_is_replaced(tmp_path: Path) -> None:
    with orchestrator(die_after=60, die_once=tmp_path / "died", delay_s=0.05) as session:
        before = session.workers[0].worker
        result = session.search(PROBLEM, MajorityVote(n=12), seed=3, law=LAW)
        assert outputs(result) == truth()
        assert session.workers[0].worker != before


def test_a_method_of_the_users_own() -> None:
    async def longest(problem: Problem, context: SearchContext) -> SearchResult:
        root = await context.root(problem)
        candidates = [candidate async for candidate in context.sample([root], n=3)]
        best = max(candidates, key=lambda candidate: candidate.n_tokens)
        return SearchResult(problem.id, "longest", best.text, candidates, best.path)

    with orchestrator() as session:
        result = session.search(PROBLEM, longest, seed=3, law=LAW)
        assert len(result.candidates) == 3
        assert result.generated_tokens == sum(map(len, truth(n=3)))
        refused = session.search(Problem("long", "x" * 600), MajorityVote(n=1))
        assert "too many" in refused.candidates[0].message


def test_an_interrupt_ends_the_search_and_leaves_a_usable_orchestrator() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts jobs in the background without it
    problems = [Problem(str(i), "seven") for i in range(500)]
    with orchestrator(delay_s=0.05) as session:
        threading.Timer(1.0, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            list(session.search_many(problems, MajorityVote(n=8), law=LAW))
        assert outputs(session.search(PROBLEM, MajorityVote(n=12), seed=3, law=LAW)) == truth()


def _no_such_model(config: EngineConfig, log: Any) -> Any:
    raise TargetError(f"{config.target}: no such model; give a folder")


def test_mistakes_are_one_line() -> None:
    with pytest.raises(TargetError, match=r"^toy: no such model; give a folder$"):
        Orchestrator("toy", make_engine=_no_such_model)
    with pytest.raises(StoreError, match=r"^store: redis://\*\*\*@host"):
        Orchestrator("toy", store="redis://:secret@host")
    with pytest.raises(ConfigError, match=r"^workers: 0"):
        Orchestrator("toy", workers=0)
    with pytest.raises(PlacementError, match=r"GPU: want 1, have 0, free 0.*ray status"):
        Orchestrator("toy", device="cuda", placement=PlacementConfig(place_within_s=0.5))
    with pytest.raises(ConfigError, match="cuda:1"):
        Orchestrator("toy", device="cuda:1")
    with pytest.raises(ConfigError, match="did you mean"):
        Orchestrator("toy", draft="stand")


def _never_loads(config: EngineConfig, log: Any) -> Any:
    time.sleep(60)


def test_a_worker_that_does_not_load_in_time_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ray_verifier, "_LOAD_WITHIN_S", 0.3)
    with pytest.raises(ClusterError, match=r"^a worker did not load toy \(no reply within 0\.3 s\); see `ray logs`$"):
        Orchestrator("toy", make_engine=_never_loads)


class Hosted:
    """A plain class for the boundary's own tests."""

    def slow(self, seconds: float) -> str:
        time.sleep(seconds)
        return "slept"

    def die(self) -> None:
        os._exit(1)

    def ping(self) -> int:
        return os.getpid()


def test_the_boundary_keeps_deadlines_and_tells_failures_apart() -> None:
    async def scenario() -> None:
        hosted = remote(Hosted, max_concurrency=2)
        actor = await hosted.create(30, {"num_cpus": 0})
        with pytest.raises(TimeoutError, match=r"0\.2 s"):
            await actor.call(0.2, Hosted.slow, 1.0)
        assert await actor.call_health(5, Hosted.ping) != os.getpid()
        with pytest.raises(WorkerLostError):
            await actor.call(10, Hosted.die)
        with pytest.raises(PlacementError, match=r"CPU: want 64, have 2, .*ray status"):
            await hosted.create(1, {"num_cpus": 64})

    asyncio.run(scenario())


_PROGRAM = """
import ray
from tests.toys_decoder import toy_engine
from tts_orch import MajorityVote, Orchestrator

with Orchestrator("toy", make_engine=toy_engine) as orchestrator:
    print(len(orchestrator.search("seven", MajorityVote(n=3)).candidates), ray.is_initialized())
print(ray.is_initialized())
"""


def test_a_program_without_a_cluster_gets_one_of_its_own(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")} | {
        "HOME": str(tmp_path)
    }
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=80
    )
    assert done.stdout.split() == ["3", "True", "False"], done.stderr
