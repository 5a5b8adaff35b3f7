"""Answers of the target itself as token sequences: what it will really be asked to draft."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Final, TypeAlias

from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.sampling import collect
from tts_orch.records import Candidate, Problem, SearchResult
from tts_orch.training.drafters.given_answers import Encoding
from tts_orch.training.drafters.training_sequences import TrainingSequence

__all__ = ["Answer", "answered_sequences", "one_answer"]

Answer: TypeAlias = Callable[[Sequence[Problem]], Generator[SearchResult, None, None]]
"""Answers prompts by `one_answer`; closing it cancels the rest."""

_AT_A_TIME: Final = 64
"""Prompts that are answered before anybody asks whether there are enough."""


def answered_sequences(problems: Sequence[Problem], encoding: Encoding, answer: Answer) -> Iterator[TrainingSequence]:
    """Yield every prompt with the target's answer, in order; prompts whose answers failed are left out.

    Args:
        problems: the prompts.
        encoding: of the prompts.
        answer: called for as many prompts as are asked for.
    """
    for first in range(0, len(problems), _AT_A_TIME):
        group = problems[first : first + _AT_A_TIME]
        with closing(answer(group)) as results:
            answers = {result.problem_id: result.candidates[0] for result in results}
        for problem in group:
            candidate: Candidate = answers[problem.id]
            if candidate.is_complete:
                yield encoding.sequence(problem, candidate.token_ids)


async def one_answer(problem: Problem, context: SearchContext) -> SearchResult:
    """Sample one answer; a search policy."""
    candidates = await collect(context, [await context.root(problem)], 1)
    return SearchResult(problem.id, "answer", None, candidates)
