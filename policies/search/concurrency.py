"""Coroutines that belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["together"]

_T = TypeVar("_T")


async def together(works: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines side by side and return what they return, in order.

    When one raises or this is cancelled, the others are cancelled too and have ended by the time this ends.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
