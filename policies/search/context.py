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

    @property
    def law(self) -> SamplingParams:
        """The run's sampling law."""
        ...

    async def root(self, problem: Problem) -> Prefix:
        """Return the prefix of the problem's rendered and tokenised prompt, with the empty path."""
        ...

    def sample(
        self,
        prefixes: Sequence[Prefix],
        *,
        n: int,
        first: int = 0,
        step: StepRule | None = None,
        law: SamplingParams | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Candidate, None]:
        """Sample children `first` to `first + n - 1` of every prefix and yield them as they finish.

        Child `i` of a prefix has the path `prefix.path + (i,)` and the seed of that path, so the same call gives the same
        candidates on any cluster. `aclose()` cancels what is left; its tokens are counted as generated. A candidate that
        failed for good is yielded with finish reason `error`; once a budget of the problem is spent, what is left of this
        and of later calls is yielded as `cancelled`.

        Args:
            prefixes: of this problem.
            n: continuations of each.
            first: number of the first of them.
            step: where they may end before their solutions do; without one they are sampled whole.
            law: instead of the run's; `max_new_tokens` counts from the end of the prompt.
            priority: lower is decoded first.
        """
        ...

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Return the reward model's step scores of every candidate, at least one each, all in [0, 1].

        A candidate that cannot be scored, too long for the model for instance, or that is not scored by a deadline, has none,
        which never wins against one that has.

        Raises:
            ConfigError: there is no reward model.
        """
        ...

    @property
    def has_rewards(self) -> bool:
        """Whether there is a reward model, or the target's own word in its place, to `score` with."""
        ...

    async def append(self, prefix: Prefix, text: str) -> Prefix:
        """Return the prefix with the tokens of a text behind it, its path and seeds unchanged."""
        ...

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition the candidates by equivalent answers, independent of their order.

        Returns:
            A class number for each candidate (numbers in order of first appearance), None for an abstention.
        """
        ...

    async def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate] = ()) -> None:
        """Journal a search step, for the report: what the search goes on from, or ends with, and what it gives up.

        Candidates carry the step scores that decided it.
        """
        ...
