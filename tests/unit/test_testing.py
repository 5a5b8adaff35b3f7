"""The fake context keeps its promises, and its documented example runs."""

from __future__ import annotations

import asyncio
import doctest
from contextlib import aclosing
from dataclasses import replace

import pytest

import tts_orch.testing
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.sampling import collect
from tts_orch.records import FinishReason, Problem, StepRule
from tts_orch.testing import FakeSearchContext, FakeStep, fake_candidate


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
    assert context.has_rewards
    assert not FakeSearchContext({}).has_rewards
    assert asyncio.run(context.answer_classes(candidates)) == [0, None, 0]
    asyncio.run(context.keep(candidates[1:], candidates[:1]))
    assert (context.scored, context.kept, context.dropped) == ([[(0,)]], [[(1,), (2,)]], [[(0,)]])


def test_a_path_outside_the_script_is_an_error() -> None:
    async def sample() -> None:
        context = FakeSearchContext({})
        root = await context.root(Problem(id="p", prompt="?"))
        async for _ in context.sample([root], n=1):
            pass

    with pytest.raises(KeyError):
        asyncio.run(sample())


def test_a_planted_tree_grows_step_by_step_or_whole() -> None:
    def tree(output: tuple[int, ...], seed: int | None) -> FakeStep:
        reason = FinishReason.STEP if len(output) < 3 else FinishReason.EOS
        return FakeStep((len(output), 0 if seed is None else 7), f"{len(output)} ", reason)

    async def grow() -> None:
        context = FakeSearchContext(tree)
        root = await context.root(Problem(id="p", prompt="?"))
        [one] = await collect(context, [root], 1, StepRule())
        assert (one.token_ids, one.text, one.can_continue, one.parent) == ((0, 7), "0 ", True, ())
        greedy = replace(context.law, temperature=0.0)
        [two] = await collect(context, [root.after(one, (1, 0))], 1, StepRule(), greedy)
        assert (two.token_ids, two.text, two.path) == ((0, 7, 2, 0), "0 2 ", (1, 0, 0))
        assert (two.parent, two.n_before, two.n_new, two.is_solution) == ((0,), 2, 2, False)
        longer = await context.append(root.after(two), "!")
        [whole] = await collect(context, [longer], 1)
        assert (whole.token_ids[4], whole.text, whole.finish_reason) == (ord("!"), "0 2 !5 ", FinishReason.EOS)
        assert context.generated_tokens == 6

    asyncio.run(grow())


def test_failures_and_a_spent_budget_end_candidates_early() -> None:
    async def reasons() -> list[FinishReason]:
        context = FakeSearchContext(
            lambda output, seed: FakeStep((1, 2), "x", FinishReason.EOS),
            fails=lambda path: path == (0,),
            token_budget=3,
        )
        root = await context.root(Problem(id="p", prompt="?"))
        return [candidate.finish_reason for candidate in await collect(context, [root], 4)]

    assert asyncio.run(reasons()) == [FinishReason.ERROR, FinishReason.EOS, FinishReason.EOS, FinishReason.CANCELLED]
