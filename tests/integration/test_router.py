"""The router learns from what verifiers report, and assigns drafters to problems; lost, it is replaced, and nobody waits."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tests.integration.local_verifier import LocalVerifier, factory, plan_of, services_of
from tts_orch.actors import router
from tts_orch.actors._event_loop import EventLoopThread
from tts_orch.actors.router import RouterClient
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_runner import search
from tts_orch.policies.routing.report import MemberTally, RoutingReport
from tts_orch.records import Problem

pytestmark = pytest.mark.timeout(90)

PROBLEMS = [Problem(str(i), "seven", domain="math") for i in range(40)]


def report(**accepted: int) -> RoutingReport:
    return RoutingReport({("math", name): MemberTally(steps=100, accepted=n) for name, n in accepted.items()})


def test_problems_are_assigned_by_reports_whatever_becomes_of_the_router(
    ray_session: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(router, "_TELL_EVERY_S", 0.05)
    reports = [report(chat=10, copies=30), report(chat=90, copies=40), RoutingReport()]
    collected: list[int] = []

    async def collect() -> list[RoutingReport]:
        collected.append(len(reports))
        news, reports[:] = list(reports), []
        return news

    loop = EventLoopThread()
    client = RouterClient(collect, lambda: ["copies", "chat"])

    async def assigned() -> set[str]:
        return {await client.assign(problem) for problem in PROBLEMS}

    assert loop.run(assigned()) == {""}  # there is none yet
    loop.run(client.start())
    while len(collected) < 2:
        time.sleep(0.01)
    assert loop.run(assigned()) == {"chat", ""}  # a few are left to compare drafters
    lost = client._router
    assert lost is not None
    lost.kill()
    while client._router in (lost, None):  # what is killed may answer for a moment
        assert loop.run(assigned()) <= {"chat", ""}
    assert loop.run(assigned()) == {"chat", ""}  # what was reported is reported once
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    loop.run(client.close())
    loop.close()


def test_the_drafter_and_domain_of_a_problem_are_in_its_requests() -> None:
    verifier = LocalVerifier("v")

    async def run() -> None:
        controller = SearchController(factory(verifier), 1)
        await controller.start()

        async def assign(problem: Problem) -> str:
            return f"drafter of {problem.id}"

        services = replace(services_of(controller), assign=assign)
        await search(PROBLEMS[3], 0, plan_of(3), services)
        await search(Problem("no domain", "seven"), 1, plan_of(1), services_of(controller))
        await controller.close()

    asyncio.run(run())
    named = {(request.domain, request.drafter) for request in verifier.requests[:3]}
    assert named == {("math", "drafter of 3")}
    assert (verifier.requests[3].domain, verifier.requests[3].drafter) == ("", "")
