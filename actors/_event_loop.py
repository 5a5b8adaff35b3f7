"""An event loop in a thread of its own, so that everybody can call coroutines: plain code, notebooks, other loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

__all__ = ["EventLoopThread"]

Result = TypeVar("Result")

_UNWIND_WITHIN_S: Final = 60.0


class EventLoopThread:
    """Runs coroutines for callers in other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="orchestrator", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end; an interrupt of the caller cancels it and waits until it has unwound."""
        future, has_ended = self._start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            has_ended.wait(_UNWIND_WITHIN_S)
            raise

    async def arun(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine for a caller in another event loop; cancelling the caller does as an interrupt in `run`."""
        future, has_ended = self._start(work)
        try:
            return await asyncio.wrap_future(future)
        except BaseException:
            future.cancel()
            await asyncio.to_thread(has_ended.wait, _UNWIND_WITHIN_S)
            raise

    def close(self) -> None:
        """Cancel what still runs and stop."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _start(self, work: Coroutine[Any, Any, Result]) -> tuple[Future[Result], threading.Event]:
        has_begun, has_ended = threading.Event(), threading.Event()

        async def watched() -> Result:
            has_begun.set()
            try:
                return await work
            finally:
                has_ended.set()

        def note_end(future: Future[Result]) -> None:
            if not has_begun.is_set():  # cancelled before its first step; once begun, only its own end counts
                has_ended.set()

        future = asyncio.run_coroutine_threadsafe(watched(), self._loop)
        future.add_done_callback(note_end)
        return future, has_ended


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
