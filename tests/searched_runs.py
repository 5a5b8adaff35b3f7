"""Run folders of any search method, as `tts-orch run` leaves them: planted trees are searched, no model is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tts_orch.config import RunConfig
from tts_orch.journal import Journal
from tts_orch.policies.search import SEARCH_POLICIES
from tts_orch.records import Candidate, FinishReason, Prefix, Problem
from tts_orch.results import ProblemResult
from tts_orch.run_folder import RunFolder
from tts_orch.summary import DecodingTime, summarise
from tts_orch.tasks.problems import read_problems
from tts_orch.testing import FakeSearchContext, FakeStep

RIGHT = "42"


def apples(output: tuple[int, ...], seed: int | None) -> FakeStep:
    """Take two to four handfuls of apples; the count is right if no handful was small."""
    handful = (seed or 9) % 10
    handfuls = (*output, handful)
    text = f"Step {len(handfuls)}: we take {handful} apples & lay them down.\n\n"
    if len(handfuls) < 2 + (handfuls[0] + len(handfuls)) % 3:
        return FakeStep((handful,), text)
    answer = RIGHT if min(handfuls) > 5 else "13" if sum(handfuls) % 5 else None
    return FakeStep((handful,), f"{text}There are {answer}.", FinishReason.EOS, answer)


def judged(candidate: Candidate) -> list[float]:
    """Score every step by its handful."""
    return [round(0.05 + handful / 10, 3) for handful in candidate.token_ids]


class _JournalingContext(FakeSearchContext):
    def __init__(self, journal: Journal, *script: Any, **settings: Any) -> None:
        super().__init__(*script, **settings)
        self._journal = journal

    async def sample(self, prefixes: Sequence[Prefix], **settings: Any) -> AsyncGenerator[Candidate, None]:  # type: ignore[override]
        async with aclosing(super().sample(prefixes, **settings)) as stream:
            async for candidate in stream:
                self._journal.record(candidate)
                yield candidate

    async def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate] = ()) -> None:
        self._journal.keep(kept, dropped)


def searched_run(
    folder: Path,
    method: dict[str, Any],
    n_problems: int = 3,
    *,
    has_rewards: bool = True,
    prompt: str = "How many apples?",
) -> Path:
    """Search some problems and write their run folder."""
    folder.parent.mkdir(exist_ok=True)
    problems = folder.with_name("apples.jsonl")
    lines = ({"id": f"p{number}", "prompt": f"{prompt} ({number})", "answer": RIGHT} for number in range(n_problems))
    problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
    reward = {"kind": "judge"} if has_rewards else None
    engine = {"target": "toy"}
    config = RunConfig(problems=problems, engine=engine, method=method, reward=reward, out=folder)  # type: ignore[arg-type]
    with RunFolder(config, read_problems(problems)) as run:
        run.begin({"weights": "w", "numerics": "bitwise"}, ["f"])
        for problem in read_problems(problems):
            run.add(_searched(problem, config, run.journal, has_rewards))
        summary = summarise(run.results, n_problems, DecodingTime(2.0, 120))
        run.write_summary({**summary, "verification": "keyed", "plain_decoding": None})
    return folder


def _searched(problem: Problem, config: RunConfig, journal: Journal, has_rewards: bool) -> ProblemResult:
    context = _JournalingContext(journal, apples, step_scores=judged if has_rewards else None)
    search = SEARCH_POLICIES[config.method.name]
    found = asyncio.run(search(problem, context, config.method))  # type: ignore[arg-type]
    n_tokens = context.generated_tokens
    rewards = {"reward_tokens": 2 * n_tokens * has_rewards, "reward_tokens_whole": 5 * n_tokens * has_rewards}
    found = replace(found, generated_tokens=n_tokens, verify_steps=n_tokens, **rewards)
    return ProblemResult.of(problem, found, config.method)
