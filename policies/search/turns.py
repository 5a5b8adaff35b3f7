"""Run numbered pieces of work side by side, a few at a time, and take their results in turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from contextlib import aclosing
from itertools import islice
from typing import Any, TypeVar

from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, Prefix, StepRule
from tts_orch.stopping_config import DrawingOrder

__all__ = ["run_in_turn", "sample_child"]

T = TypeVar("T")


async def run_in_turn(
    work: Callable[[int], Coroutine[Any, Any, T]],
    numbers: Iterable[int],
    *,
    at_once: int,
    order: DrawingOrder = "index",
) -> AsyncGenerator[T, None]:
    """Yield the result of every piece of work; `aclose()`, an error and a cancellation cancel what is running.

    Args:
        work: makes the piece of a number.
        numbers: of the pieces, begun in this order.
        at_once: pieces that are begun and whose results are not yet taken, at most.
        order: `index` yields in the order of the numbers, `completion` as they end.
    """
    waiting = iter(numbers)
    running: list[asyncio.Task[T]] = []
    try:
        while True:
            running += [asyncio.create_task(work(number)) for number in islice(waiting, at_once - len(running))]
            if not running:
                return
            awaited = running[:1] if order == "index" else running
            await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
            ended = next(task for task in awaited if task.done())
            running.remove(ended)
            yield ended.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def sample_child(context: SearchContext, prefix: Prefix, number: int, step: StepRule | None = None) -> Candidate:
    """Return one child of a prefix; cancelling this cancels it."""
    async with aclosing(context.sample([prefix], n=1, first=number, step=step)) as stream:
        return await anext(stream)
