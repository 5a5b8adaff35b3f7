"""A search step by step over a real Ray, with toy decoders and a function as the reward model: whatever dies, one result."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray

from tests.toys_decoder import toy_engine
from tts_orch.config import DVTS, LawConfig
from tts_orch.errors import ConfigError
from tts_orch.journal import Journal
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Candidate, Problem, SearchResult

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("ray_session")]

ROOT = Path(__file__).resolve().parents[2]
PROBLEMS = [Problem(f"p{i}", "seven" * (i + 1)) for i in range(4)]
METHOD = DVTS(n=8, beam_width=2, delimiters=("7",), min_step_tokens=2, max_steps=8)
LAW = LawConfig(max_new_tokens=80)


def reward(problem: Problem, steps: Sequence[str]) -> list[float]:
    """Score a solution as any function of its text would."""
    return [sum(map(ord, "".join(steps))) % 101 / 100]


def orchestrator(workers: int = 1, **settings: Any) -> Orchestrator:
    decoder = {name: settings.pop(name) for name in ("delay_s", "die_after", "die_once") if name in settings}
    make_engine = functools.partial(toy_engine, **decoder)
    return Orchestrator("toy", workers=workers, max_batch=8, make_engine=make_engine, reward=reward, **settings)


def solve(session: Orchestrator, journal: Journal | None = None) -> list[SearchResult]:
    return sorted(
        session.search_many(PROBLEMS, METHOD, seed=3, law=LAW, journal=journal), key=lambda result: result.problem_id
    )


def what_counts(results: Sequence[SearchResult]) -> list[tuple[Any, ...]]:
    return [
        (
            result.answer,
            result.chosen,
            [replace(one, worker="", fingerprint="", verify_steps=0) for one in result.candidates],
            result.generated_tokens,
        )
        for result in results
    ]


@functools.cache
def truth() -> list[SearchResult]:
    with orchestrator() as session:
        assert session.reward is not None
        return solve(session)


def test_more_workers_change_nothing() -> None:
    with orchestrator(workers=3, delay_s=0.01) as session:
        results = solve(session)
    assert what_counts(results) == what_counts(truth())
    candidates = [candidate for result in results for candidate in result.candidates]
    assert len({candidate.worker for candidate in candidates}) == 3
    assert max(len(candidate.path) for candidate in candidates) > 2
    assert all(candidate.step_scores for candidate in candidates)


def test_a_killed_worker_changes_nothing() -> None:
    killed: list[int] = []

    def kill_one(candidate: Candidate) -> None:
        if len(candidate.path) > 2 and not killed:
            killed.append(int(session.workers[0].worker.partition(":")[2]))
            os.kill(killed[0], signal.SIGKILL)

    with orchestrator(workers=2, delay_s=0.02, on_candidate=kill_one) as session:
        results = solve(session)
    assert killed
    assert what_counts(results) == what_counts(truth())


def test_an_aborted_search_goes_on_where_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    with orchestrator(delay_s=0.01) as session:
        with closing(session.search_many(PROBLEMS, METHOD, seed=3, law=LAW, journal=journal)) as results:
            next(results)
        journal.close()
        n_before = len((tmp_path / "candidates.jsonl").read_text().splitlines())
        decoded = session.statistics()["committed_tokens"]
        journal = Journal(tmp_path)
        resumed = solve(session, journal)
        journal.close()
        assert session.statistics()["committed_tokens"] - decoded < sum(one.generated_tokens for one in resumed)
    assert 0 < n_before < len((tmp_path / "candidates.jsonl").read_text().splitlines())
    assert what_counts(resumed) == what_counts(truth())


_DRIVER = """
import sys
from pathlib import Path

from tests.integration.test_stepwise_cluster import Journal, orchestrator, solve

with orchestrator(delay_s=0.05, address=sys.argv[1]) as session:
    solve(session, Journal(Path(sys.argv[2])))
"""


def test_a_killed_driver_goes_on_where_it_was(tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    driver = subprocess.Popen([sys.executable, "-c", _DRIVER, address, str(tmp_path)], cwd=ROOT)
    lines = tmp_path / "candidates.jsonl"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (lines.exists() and lines.read_text().count("\n") > 20):
        time.sleep(0.05)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    n_before = lines.read_text().count("\n")
    assert n_before > 20
    journal = Journal(tmp_path)
    with orchestrator() as session:
        resumed = solve(session, journal)
    journal.close()
    assert lines.read_text().count("\n") > n_before
    assert what_counts(resumed) == what_counts(truth())


def test_steps_without_a_reward_model_are_refused() -> None:
    with Orchestrator("toy", make_engine=toy_engine) as session, pytest.raises(ConfigError, match="reward model"):
        session.search(PROBLEMS[0], METHOD)
