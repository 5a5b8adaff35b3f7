"""The only door between a search policy and the world.

A policy is an `async` function of (problem prefix, context, config). It sees token ids, texts, answers and scores; it
knows neither Ray nor models nor files, so it is tested with `tts_orch.testing.FakeSearchContext`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from tts_orch.records import Candidate, Prefix, Problem, SamplingParams, StepRule

__all__ = ["SearchContext"]


class SearchContext(Protocol):
    """What a policy may ask for."""

    async def root(self, problem: Problem) -> Prefix:
        """Return the prefix of the problem's rendered and tokenised prompt, with the empty path."""
        ...

    def sample(
        self,
        prefixes: Sequence[Prefix],
        *,
        n: int,
        step: StepRule | None = None,
        law: SamplingParams | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Candidate, None]:
        """Sample `n` continuations of every prefix and yield them as they finish.

        Child `i` of a prefix has the path `prefix.path + (i,)` and the seed of that path, so the same call gives the same
        candidates on any cluster. `aclose()` cancels what is left; its tokens are counted as generated. A candidate that
        failed for good is yielded with finish reason `error`.
        """
        ...

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Return the reward model's step scores of every candidate."""
        ...

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition the candidates by equivalent answers, independent of their order.

        Returns:
            A class number for each candidate (numbers in order of first appearance), None for an abstention.
        """
        ...

    async def keep(self, candidates: Sequence[Candidate]) -> None:
        """Journal a search step: these candidates were kept, their siblings dropped."""
        ...
