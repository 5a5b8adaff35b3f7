"""Trained drafters that are pooled, killed, added, replaced and removed while an orchestrator searches: the same tokens."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.neural_toys import noisy_toy
from tests.toys import save_toy
from tts_orch.actors.router import RouterClient
from tts_orch.config import LawConfig, MajorityVote
from tts_orch.errors import ConfigError
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Problem

pytestmark = [pytest.mark.timeout(180), pytest.mark.usefixtures("ray_session")]

PROBLEMS = [
    Problem(f"p{i}", prompt, domain="sums")
    for i, prompt in enumerate(("10 + 1 = 11\n10 + 11 =", "the an in the an in", "11 + 11 ="))
]
LAW = LawConfig(temperature=0.6, max_new_tokens=50)

Tokens = dict[tuple[str, tuple[int, ...]], tuple[int, ...]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a language model that often agrees with the target."""
    return save_toy(tmp_path_factory.mktemp("near"), noisy_toy(0.1, torch.float32))


@contextmanager
def orchestrator(target: Path, **settings: object) -> Iterator[Orchestrator]:
    fixed = {"kv_memory_gib": 0.02, "threads": 1, "max_batch": 4, "template": "raw", "workers": 1, "node_budget": False}
    with Orchestrator(str(target), **{**fixed, "max_nodes": 8, "draft_depth": 3, **settings}) as session:  # type: ignore[arg-type]
        yield session


def tokens(session: Orchestrator) -> Tokens:
    results = session.search_many(PROBLEMS, MajorityVote(n=4), seed=5, law=LAW)
    return {(c.problem_id, c.path): c.token_ids for result in results for c in result.candidates}


@pytest.fixture(scope="module")
def plain(target: Path, ray_session: None) -> Tokens:
    with orchestrator(target, drafter="none") as session:
        return tokens(session)


def counter(session: Orchestrator, name: str) -> float:
    return session.statistics().get(name, 0.0)


def search_with_drafts(session: Orchestrator, plain: Tokens) -> None:
    """Search until drafts were accepted: on a busy machine a pool may be late for a whole search."""
    before = counter(session, "accepted_nodes")
    for _ in range(4):
        assert tokens(session) == plain
        if counter(session, "accepted_nodes") > before:
            return
    pytest.fail("nothing was drafted in four searches")


def meanwhile(action: Callable[[], object], search: Callable[[], Tokens]) -> Tokens:
    """Do something while a search goes on."""
    failures: list[BaseException] = []

    def act() -> None:
        try:
            action()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=act)
    thread.start()
    found = search()
    thread.join()
    assert not failures, failures
    return found


def test_pooled_drafters_change_no_token_whatever_becomes_of_the_pool(target: Path, near: Path, plain: Tokens) -> None:
    pooled = {"drafter": "neural", "drafters": {"near": near}, "drafter_placement": "pooled", "draft_overlap": True}
    with orchestrator(target, **pooled) as session:
        search_with_drafts(session, plain)
        assert meanwhile(lambda: session.drafters.add("more", near), lambda: tokens(session)) == plain
        assert session.drafters.names == ("near", "more")
        session.drafters.remove("near")
        search_with_drafts(session, plain)
        keeper = session.drafters._keeper
        assert keeper is not None
        keeper._actor.kill()  # type: ignore[union-attr]
        assert tokens(session) == plain


def test_drafters_beside_the_target_change_between_steps(target: Path, near: Path, plain: Tokens) -> None:
    beside = {"drafter": "stand", "drafters": {"near": near}, "routing": "problem"}
    with orchestrator(target, **beside) as session:
        assert tokens(session) == plain
        assert meanwhile(lambda: session.drafters.add("more", near), lambda: tokens(session)) == plain
        assert meanwhile(lambda: session.drafters.replace("near", near), lambda: tokens(session)) == plain
        session.drafters.remove("more")
        session.drafters.remove("near")
        assert session.drafters.names == ("stand",)
        assert tokens(session) == plain
        with pytest.raises(ConfigError, match=r"no trained drafter 'near'; there are: none"):
            session.drafters.remove("near")
        with pytest.raises(ConfigError, match="there is a stand already"):
            session.drafters.add("stand", near)
        with pytest.raises(ConfigError, match="is no folder"):
            session.drafters.add("absent", near / "absent")
        os.kill(int(session.workers[0].worker.partition(":")[2]), signal.SIGKILL)
        assert tokens(session) == plain  # its replacement begins with the drafters of the time


def test_a_router_that_is_killed_costs_assignments_and_no_token(
    target: Path, near: Path, plain: Tokens, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    routers: list[RouterClient] = []
    start = RouterClient.start

    async def kept(self: RouterClient) -> None:
        await start(self)
        routers.append(self)

    monkeypatch.setattr(RouterClient, "start", kept)
    with orchestrator(target, drafter="stand", drafters={"near": near}, routing="problem") as session:
        (router,) = routers
        lost = router._router
        assert lost is not None
        assert meanwhile(lost.kill, lambda: tokens(session)) == plain
        while router._router in (lost, None):  # what is killed may answer for a moment
            assert tokens(session) == plain
        assert tokens(session) == plain
    assert sum("the router is lost" in message for message in caplog.messages) == 1
