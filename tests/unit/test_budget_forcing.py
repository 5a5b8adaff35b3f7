"""Budget forcing against scripted pieces of thinking."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from tts_orch.config import BudgetForcing
from tts_orch.policies.search import SEARCH_POLICIES
from tts_orch.records import Candidate, FinishReason, Path, Prefix, Problem, SearchResult, StepRule
from tts_orch.testing import FakeSearchContext, FakeStep

MARK = "</think>"
EOS = 300  # no byte


class ThinkingContext(FakeSearchContext):
    """Records how long each piece may be and what it goes on from."""

    def __init__(self, script: Mapping[Path, FakeStep]) -> None:
        super().__init__(script)
        self.limits: dict[Path, int | None] = {}
        self.prefixes: dict[Path, str] = {}

    async def sample(
        self, prefixes: Sequence[Prefix], *, step: StepRule | None = None, **call: Any
    ) -> AsyncGenerator[Candidate, None]:
        async with aclosing(super().sample(prefixes, step=step, **call)) as stream:
            async for candidate in stream:
                self.limits[candidate.path] = step and step.max_tokens
                output = prefixes[0].token_ids[prefixes[0].prompt_length :].tolist()
                self.prefixes[candidate.path] = "".join(map(chr, output))
                yield candidate


def piece(text: str, reason: FinishReason = FinishReason.STEP, answer: str | None = None) -> FakeStep:
    end = (EOS,) if reason is FinishReason.EOS else ()
    return FakeStep((*text.encode(), *end), text, reason, answer)


def force(script: Mapping[Path, FakeStep], **settings: Any) -> tuple[SearchResult, ThinkingContext]:
    context = ThinkingContext(script)
    config = BudgetForcing(**{"n": 1, "thinking_tokens": 40, **settings})

    async def run() -> SearchResult:
        return await SEARCH_POLICIES[config.name](Problem(id="problem", prompt="?"), context, config)

    return asyncio.run(run()), context


def test_an_early_end_is_taken_back_and_then_let_stand() -> None:
    script = {
        (0,): piece("one" + MARK),
        (0, 0): piece(" two" + MARK),
        (0, 0, 0): piece("2", FinishReason.EOS, "2"),
    }
    result, context = force(script, ignores=1)
    assert (result.answer, result.chosen) == ("2", (0, 0, 0))
    assert context.prefixes == {(0,): "", (0, 0): "oneWait", (0, 0, 0): f"oneWait two{MARK}"}
    assert context.limits == {(0,): 40, (0, 0): 37, (0, 0, 0): None}  # neither marks nor what was written count


def test_a_spent_budget_asks_for_the_answer() -> None:
    script = {(0,): piece("x" * 40, FinishReason.STEP_LENGTH), (0, 0): piece(" 2", FinishReason.EOS, "2")}
    result, context = force(script, answer_prefix="Answer:")
    assert result.answer == "2"
    assert context.prefixes[(0, 0)] == "x" * 40 + f"\n{MARK}\nAnswer:"
    assert context.limits[(0, 0)] is None


def test_without_ignores_the_first_end_stands() -> None:
    script = {(0,): piece("one" + MARK), (0, 0): piece("2", FinishReason.EOS, "2")}
    result, context = force(script, ignores=0)
    assert (result.answer, context.prefixes[(0, 0)]) == ("2", f"one{MARK}")


def test_an_end_with_the_last_token_of_the_budget_is_not_taken_back() -> None:
    script = {(0,): piece("x" * 40 + MARK), (0, 0): piece("2", FinishReason.EOS, "2")}
    result, context = force(script, ignores=5)
    assert (result.answer, context.limits) == ("2", {(0,): 40, (0, 0): None})


def test_an_output_that_ends_while_thinking_goes_on() -> None:
    script = {
        (0,): piece("one", FinishReason.EOS),
        (0, 0): piece(" two", FinishReason.EOS),
        (0, 0, 0): piece(" 2", FinishReason.EOS, "2"),
    }
    result, context = force(script)
    assert result.answer == "2"
    assert context.prefixes[(0, 0)] == "oneWait"
    assert context.prefixes[(0, 0, 0)] == f"oneWait two\n{MARK}\nFinal Answer:"


def test_a_mark_in_other_tokens_ends_the_thinking() -> None:
    glued = FakeStep((*b"one</think", 301), f"one{MARK}\n")
    result, context = force({(0,): glued, (0, 0): piece("2", FinishReason.EOS, "2")}, ignores=3)
    assert (result.answer, list(context.limits)) == ("2", [(0,), (0, 0)])


def test_endless_marks_end() -> None:
    script = {(0,) * depth: piece(MARK) for depth in range(1, 5)} | {(0,) * 5: piece("2", FinishReason.EOS, "2")}
    result, context = force(script, ignores=3)
    assert result.answer == "2"
    assert list(context.limits.values()) == [40, 40, 40, 40, None]


@pytest.mark.parametrize("reason", [FinishReason.LENGTH, FinishReason.STOP_STRING, FinishReason.ERROR])
def test_what_ends_for_good_while_thinking_is_the_candidate(reason: FinishReason) -> None:
    result, _ = force({(0,): piece("one", reason)})
    assert [candidate.finish_reason for candidate in result.candidates] == [reason]
    assert result.answer is None


def test_candidates_vote_and_each_goes_its_own_way() -> None:
    script = {(i,): piece("one" + MARK) for i in range(3)}
    script |= {(i, 0): piece(answer, FinishReason.EOS, answer) for i, answer in enumerate("787")}
    result, _ = force(script, n=3, ignores=0)
    assert (result.answer, result.votes) == ("7", {"7": 2.0, "8": 1.0})
    assert [candidate.path for candidate in result.candidates] == [(0, 0), (1, 0), (2, 0)]
