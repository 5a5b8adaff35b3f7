"""The driver's side of a reward model: batches, equal texts, lost actors, cancelled callers."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.reward_toys import save_rlhflow_prm
from tests.toys_decoder import toy_engine
from tts_orch.actors.reward_client import RewardClient, start_reward
from tts_orch.actors.reward_model import RewardDescription
from tts_orch.config import DVTS, LawConfig
from tts_orch.errors import ClusterError, ConfigError, WorkerLostError
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Candidate, FinishReason, Problem
from tts_orch.reward_config import RewardConfig
from tts_orch.rewards.base import Solution, StepScores
from tts_orch.rewards.steps import split_steps

PROBLEMS = [Problem(f"p{i}", f"question {i}") for i in range(4)]
Fault = Callable[[int, Sequence[Solution]], Exception | None]


def candidate(text: str, *path: int) -> Candidate:
    return Candidate("p", path, 0, (1,), text, FinishReason.EOS)


class FakeHost:
    """Scores a text by its length; `fault(call number, solutions)` says what a call raises."""

    def __init__(self, fault: Fault = lambda call, solutions: None) -> None:
        self.description = RewardDescription("w", "callable", "f")
        self.calls: list[list[str]] = []
        self.was_killed = False
        self._fault = fault

    async def score(self, solutions: Sequence[Solution]) -> list[StepScores]:
        self.calls.append([solution.text for solution in solutions])
        await asyncio.sleep(0.01)
        error = self._fault(len(self.calls), solutions)
        if error is not None:
            raise error
        return [
            StepScores((1 / (1 + len(one.text)),), n_tokens=len(one.text), n_tokens_whole=2 * len(one.text))
            if one.text
            else StepScores(failure="there is no step")
            for one in solutions
        ]

    def kill(self) -> None:
        self.was_killed = True


def starting(*hosts: FakeHost) -> Callable[[], Awaitable[FakeHost]]:
    waiting = iter(hosts)

    async def start() -> FakeHost:
        return next(waiting)

    return start


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 30))


async def client_of(*hosts: FakeHost, batch: int = 16) -> RewardClient:
    client = RewardClient(starting(*hosts), batch)
    await client.start()
    return client


def test_equal_texts_are_scored_once_and_answers_keep_their_places() -> None:
    host = FakeHost()

    async def work() -> list[StepScores]:
        client = await client_of(host)
        texts = ["aaa", "b", "aaa", "", "b"]
        return await client.score(PROBLEMS[0], [candidate(text, i) for i, text in enumerate(texts)])

    answers = run(work())
    assert host.calls == [["aaa", "b", ""]]
    assert [answer.scores for answer in answers] == [(0.25,), (0.5,), (0.25,), (), (0.5,)]
    assert [answer.n_tokens for answer in answers] == [3, 1, 0, 0, 0]


def test_problems_that_ask_meanwhile_share_the_next_batch() -> None:
    host = FakeHost()

    async def work() -> dict[str, float]:
        client = await client_of(host, batch=2)
        asking = [client.score(problem, [candidate(f"{problem.id}{i}", i) for i in range(2)]) for problem in PROBLEMS]
        answers = await asyncio.gather(*asking)
        assert [len(answer) for answer in answers] == [2] * 4
        return client.statistics()

    statistics = run(work())
    assert [len(call) for call in host.calls] == [4, 4]
    assert statistics["reward_texts"] == 8
    assert statistics["reward_tokens"] == 24
    assert statistics["reward_tokens_whole"] == 48


@pytest.mark.parametrize("error", [WorkerLostError("died"), TimeoutError("no reply")])
def test_a_lost_reward_model_is_started_anew_and_asked_again(error: Exception) -> None:
    first = FakeHost(lambda call, solutions: error if call == 2 else None)
    second = FakeHost()

    async def work() -> list[StepScores]:
        client = await client_of(first, second)
        await client.score(PROBLEMS[0], [candidate("warm", 0)])
        return await client.score(PROBLEMS[1], [candidate("a", 0), candidate("bb", 1)])

    answers = run(work())
    assert [answer.scores for answer in answers] == [(0.5,), (1 / 3,)]
    assert first.was_killed
    assert not second.was_killed
    assert second.calls == [["a"], ["bb"]]  # one by one: either might have been the cause


def test_a_solution_that_ends_every_actor_takes_no_other_with_it(caplog: pytest.LogCaptureFixture) -> None:
    def fault(call: int, solutions: Sequence[Solution]) -> Exception | None:
        return WorkerLostError("out of memory") if any(one.text == "bomb" for one in solutions) else None

    async def work() -> list[StepScores]:
        client = await client_of(*(FakeHost(fault) for _ in range(3)))
        return await client.score(PROBLEMS[0], [candidate(text, i) for i, text in enumerate(("a", "bomb", "c"))])

    with caplog.at_level(logging.WARNING):
        answers = run(work())
    assert [answer.scores for answer in answers] == [(0.5,), (), (0.5,)]
    assert "out of memory" in answers[1].failure
    assert "so far 1 have none" in caplog.text


def test_a_model_that_raises_is_not_started_anew() -> None:
    host = FakeHost(lambda call, solutions: ValueError("bad text") if solutions[0].text == "x" else None)

    async def work() -> list[StepScores]:
        client = await client_of(host)
        return await client.score(PROBLEMS[0], [candidate("x", 0), candidate("a", 1)])

    answers = run(work())
    assert [answer.scores for answer in answers] == [(), (0.5,)]
    assert not host.was_killed


def test_a_reward_model_that_is_lost_again_and_again_is_an_error_for_all() -> None:
    def lose(call: int, solutions: Sequence[Solution]) -> Exception:
        return WorkerLostError("died")

    async def work() -> list[Any]:
        client = await client_of(*(FakeHost(lose) for _ in range(20)))
        asking = [client.score(problem, [candidate(f"{i}" * 3, i) for i in range(8)]) for problem in PROBLEMS]
        return await asyncio.gather(*asking, return_exceptions=True)

    errors = [answer for answer in run(work()) if isinstance(answer, Exception)]
    assert errors
    assert all(isinstance(error, ClusterError) for error in errors)


def test_what_a_cancelled_caller_wanted_is_not_sent() -> None:
    host = FakeHost()

    async def work() -> None:
        client = await client_of(host, batch=1)
        busy = asyncio.ensure_future(client.score(PROBLEMS[0], [candidate("a", 0)]))
        await asyncio.sleep(0.002)
        dropped = asyncio.ensure_future(client.score(PROBLEMS[1], [candidate("b", 0)]))
        kept = asyncio.ensure_future(client.score(PROBLEMS[2], [candidate("c", 0)]))
        await asyncio.sleep(0.002)
        dropped.cancel()
        await asyncio.gather(busy, kept)

    run(work())
    assert host.calls == [["a"], ["c"]]


def test_a_deadline_leaves_what_is_scored_and_sends_no_more() -> None:
    async def work() -> tuple[list[StepScores], FakeHost]:
        deadline = asyncio.Event()
        host = FakeHost(lambda call, solutions: deadline.set() if call == 2 else None)
        client = await client_of(host, batch=1)
        candidates = [candidate("a" * (i + 1), i) for i in range(10)]
        answers = await client.score(PROBLEMS[0], candidates, deadline)
        assert await client.score(PROBLEMS[0], candidates[:1], deadline) == [answers[-1]], "it has passed already"
        await asyncio.sleep(0.03)
        return answers, host

    answers, host = run(work())
    assert [answer.scores for answer in answers[:2]] == [(1 / 2,), (1 / 3,)]
    assert {answer.failure for answer in answers[6:]} == {"a deadline passed before"}
    assert len(host.calls) <= 3


def test_closing_cancels_what_waits() -> None:
    host = FakeHost()

    async def work() -> None:
        client = await client_of(host)
        asking = asyncio.ensure_future(client.score(PROBLEMS[0], [candidate("a", 0)]))
        await asyncio.sleep(0.002)
        await client.close()
        with pytest.raises(asyncio.CancelledError):
            await asking

    run(work())
    assert host.was_killed


def length_reward(problem: Problem, steps: Sequence[str]) -> list[float]:
    return [1 / (1 + len(step)) for step in steps]


def suicidal_reward(problem: Problem, steps: Sequence[str]) -> list[float]:
    if steps[0] == "bomb":
        os.kill(os.getpid(), signal.SIGKILL)
    return length_reward(problem, steps)


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
def test_an_actor_that_is_killed_comes_back() -> None:
    async def work() -> tuple[list[StepScores], RewardClient]:
        client = await start_reward(suicidal_reward, target="smollm2")
        try:
            texts = ["a\n\nbb", "bomb", "c"]
            return await client.score(PROBLEMS[0], [candidate(text, i) for i, text in enumerate(texts)]), client
        finally:
            await client.close()

    answers, client = asyncio.run(asyncio.wait_for(work(), 100))
    assert [answer.scores for answer in answers] == [(0.5, 1 / 3), (), (0.5,)]
    assert client.description.kind == "callable"
    assert client.statistics()["reward_unscored"] == 1


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("ray_session")
def test_a_users_mistake_is_theirs_in_one_line() -> None:
    config = RewardConfig(kind="callable", model="tts_orch.records:nothing")
    with pytest.raises(ConfigError, match="cannot be imported"):
        asyncio.run(start_reward(config, target="smollm2"))


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
def test_a_search_over_ray_reads_kept_steps_once(tmp_path: Path) -> None:
    config = RewardConfig(kind="judge", model=str(save_rlhflow_prm(tmp_path)), delimiters=("7",), threads=1)
    method = DVTS(n=4, beam_width=2, delimiters=("7",), min_step_tokens=2, max_steps=6)
    with Orchestrator("toy", make_engine=toy_engine, max_batch=8, reward=config) as session:
        results = list(session.search_many(PROBLEMS, method, law=LawConfig(max_new_tokens=80)))
        statistics = session.statistics()
        assert session.reward is not None
        assert session.reward.kind == "judge"
    scored = [candidate for result in results for candidate in result.candidates if candidate.step_scores]
    assert scored
    assert all(len(one.step_scores) == len(split_steps(one.text, ["7"])) for one in scored)
    assert sum(result.reward_tokens for result in results) == statistics["reward_tokens"]
    assert statistics["reward_tokens"] < statistics["reward_tokens_whole"] / 2
    assert statistics["reward_seconds"] > 0


@pytest.mark.timeout(120)
@pytest.mark.usefixtures("ray_session")
def test_self_certainty_starts_no_actor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tts_orch.actors.reward_client.RayRewardModel.start", None)
    method = DVTS(n=4, beam_width=2, delimiters=("7",), min_step_tokens=2, max_steps=6)
    config = RewardConfig(kind="self_certainty")
    with Orchestrator("toy", make_engine=toy_engine, max_batch=8, reward=config) as session:
        result = session.search(PROBLEMS[0], method, law=LawConfig(max_new_tokens=80))
        assert session.reward is None
    assert result.answer is not None
    assert all(candidate.step_scores for candidate in result.candidates)
