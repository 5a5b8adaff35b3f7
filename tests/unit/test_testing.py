"""The fake context keeps its promises, and its documented example runs."""

from __future__ import annotations

import asyncio
import doctest
from contextlib import aclosing

import pytest

import tts_orch.testing
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Problem
from tts_orch.testing import FakeSearchContext, fake_candidate


def test_documented_example() -> None:
    results = doctest.testmod(tts_orch.testing)
    assert results.attempted > 0
    assert results.failed == 0


def test_children_of_every_prefix_come_in_order_of_delay_then_path() -> None:
    async def paths() -> list[tuple[int, ...]]:
        context: SearchContext = FakeSearchContext(dict.fromkeys([(0,), (1,)], "x"), delays={(0,): 0.002})
        root = await context.root(Problem(id="p", prompt="?"))
        return [candidate.path async for candidate in context.sample([root], n=2)]

    assert asyncio.run(paths()) == [(1,), (0,)]


def test_closing_the_stream_records_what_was_cancelled() -> None:
    async def close_early() -> FakeSearchContext:
        context = FakeSearchContext(dict.fromkeys([(0,), (1,), (2,)], "x"))
        root = await context.root(Problem(id="p", prompt="?"))
        async with aclosing(context.sample([root], n=3)) as stream:
            assert (await anext(stream)).answer == "x"
        return context

    assert asyncio.run(close_early()).cancelled == [(1,), (2,)]


def test_scores_classes_and_kept_steps() -> None:
    context = FakeSearchContext({}, step_scores={(0,): [0.5, 0.25]})
    candidates = [fake_candidate("a", (0,)), fake_candidate(None, (1,)), fake_candidate("a", (2,))]
    assert asyncio.run(context.score(candidates[:1])) == [[0.5, 0.25]]
    assert asyncio.run(context.answer_classes(candidates)) == [0, None, 0]
    asyncio.run(context.keep(candidates[1:]))
    assert (context.scored, context.kept) == ([[(0,)]], [[(1,), (2,)]])


def test_a_path_outside_the_script_is_an_error() -> None:
    async def sample() -> None:
        context = FakeSearchContext({})
        root = await context.root(Problem(id="p", prompt="?"))
        async for _ in context.sample([root], n=1):
            pass

    with pytest.raises(KeyError):
        asyncio.run(sample())
