"""Coroutines in another thread's loop: callers wait until what they cancelled has unwound, and no longer."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

from tts_orch.actors._event_loop import EventLoopThread, _cancel_others


@pytest.fixture
def loop() -> Iterator[EventLoopThread]:
    thread = EventLoopThread()
    yield thread
    thread.close()


def test_results_and_errors_come_back(loop: EventLoopThread) -> None:
    async def divide(a: int, b: int) -> float:
        return a / b

    assert loop.run(divide(6, 3)) == 2
    with pytest.raises(ZeroDivisionError):
        loop.run(divide(1, 0))


def test_a_cancelled_caller_waits_until_the_work_has_unwound(loop: EventLoopThread) -> None:
    has_begun, has_unwound = threading.Event(), threading.Event()

    async def work() -> None:
        has_begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            has_unwound.set()

    async def caller() -> None:
        task = asyncio.create_task(loop.arun(work()))
        await asyncio.to_thread(has_begun.wait, 5)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert has_unwound.is_set()

    asyncio.run(caller())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_work_that_is_cancelled_before_its_first_step_has_ended(loop: EventLoopThread) -> None:
    async def race() -> threading.Event:
        future, has_ended = loop._start(asyncio.sleep(60))
        await asyncio.sleep(0)  # its task is made, and has not run
        await _cancel_others()
        assert future.cancelled()
        return has_ended

    assert loop.run(race()).wait(1.0)
