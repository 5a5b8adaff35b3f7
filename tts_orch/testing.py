"""Fakes for testing search policies without a model.

>>> import asyncio
>>> from tts_orch.config import MajorityVote
>>> from tts_orch.policies.search.majority_vote import majority_vote
>>> from tts_orch.records import Problem
>>> context = FakeSearchContext({(0,): "7", (1,): "8", (2,): "7"}, delays={(0,): 0.02})
>>> result = asyncio.run(majority_vote(Problem(id="seven", prompt="3 + 4?"), context, MajorityVote(n=3)))
>>> result.answer, result.votes
('7', {'7': 2.0, '8': 1.0})
>>> context.finished
[(1,), (2,), (0,)]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import numpy as np

from tts_orch.records import Candidate, FinishReason, Path, Prefix, Problem, SamplingParams, StepRule
from tts_orch.seeds import trajectory_seed

__all__ = ["FakeSearchContext", "fake_candidate"]


def fake_candidate(
    answer: str | None,
    path: Path = (),
    *,
    problem_id: str = "problem",
    self_certainty: float = 0.0,
    finish_reason: FinishReason = FinishReason.EOS,
    n_tokens: int = 1,
    verify_steps: int = 1,
) -> Candidate:
    """Return a finished candidate with this answer, its tokens all 0."""
    return Candidate(
        problem_id=problem_id,
        path=path,
        seed=trajectory_seed(0, problem_id, path),
        token_ids=(0,) * n_tokens,
        text=answer or "",
        finish_reason=finish_reason,
        answer=answer,
        self_certainty=self_certainty,
        verify_steps=verify_steps,
    )


class FakeSearchContext:
    """A `SearchContext` that plays a script instead of sampling, and records what the policy did.

    Attributes:
        finished: paths of the candidates handed out, in order.
        cancelled: paths that were asked for and never handed out.
        kept: paths of every `keep`, a list a call.
        scored: paths of every `score`, a list a call.
    """

    def __init__(
        self,
        script: Mapping[Path, str | Candidate | None],
        *,
        delays: Mapping[Path, float] | None = None,
        step_scores: Mapping[Path, Sequence[float]] | None = None,
    ) -> None:
        """Write the script.

        Args:
            script: what is sampled at each path: a candidate, or an answer for a complete one. A failure is a candidate
                with finish reason `error`.
            delays: seconds from the call until a path is finished, 0 if not given; equal delays finish in path order.
            step_scores: what the reward model says of each path.
        """
        self._script = script
        self._delays = delays or {}
        self._step_scores = step_scores or {}
        self.finished: list[Path] = []
        self.cancelled: list[Path] = []
        self.kept: list[list[Path]] = []
        self.scored: list[list[Path]] = []

    async def root(self, problem: Problem) -> Prefix:
        """Return a prefix of one token."""
        return Prefix(problem.id, np.zeros(1, dtype=np.int32), prompt_length=1)

    async def sample(
        self,
        prefixes: Sequence[Prefix],
        *,
        n: int,
        step: StepRule | None = None,
        law: SamplingParams | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Candidate, None]:
        """Yield the scripted candidates in the order of their delays."""
        places = [(prefix, (*prefix.path, child)) for prefix in prefixes for child in range(n)]
        waiting = sorted(places, key=lambda place: (self._delays.get(place[1], 0.0), place[1]))
        elapsed = 0.0
        try:
            while waiting:
                prefix, path = waiting[0]
                delay = self._delays.get(path, 0.0)
                await asyncio.sleep(delay - elapsed)
                elapsed = delay
                waiting.pop(0)
                self.finished.append(path)
                yield self._scripted(prefix.problem_id, path)
        finally:
            self.cancelled.extend(sorted(path for _, path in waiting))

    def _scripted(self, problem_id: str, path: Path) -> Candidate:
        entry = self._script[path]
        return entry if isinstance(entry, Candidate) else fake_candidate(entry, path, problem_id=problem_id)

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Return the scripted step scores."""
        self.scored.append([candidate.path for candidate in candidates])
        return [list(self._step_scores[candidate.path]) for candidate in candidates]

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition by equal answer texts."""
        number: dict[str, int] = {}
        return [
            None if candidate.answer is None else number.setdefault(candidate.answer, len(number))
            for candidate in candidates
        ]

    async def keep(self, candidates: Sequence[Candidate]) -> None:
        """Record a search step."""
        self.kept.append([candidate.path for candidate in candidates])
