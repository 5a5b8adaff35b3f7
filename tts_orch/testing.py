"""Fakes for testing search policies without a model.

Candidates come from a script by their paths:

>>> import asyncio
>>> from tts_orch.config import DVTS, MajorityVote
>>> from tts_orch.policies.search import SEARCH_POLICIES
>>> from tts_orch.records import Problem
>>> problem = Problem(id="seven", prompt="3 + 4?")
>>> context = FakeSearchContext({(0,): "7", (1,): "8", (2,): "7"}, delays={(0,): 0.02})
>>> result = asyncio.run(SEARCH_POLICIES["majority_vote"](problem, context, MajorityVote(n=3)))
>>> result.answer, result.votes
('7', {'7': 2.0, '8': 1.0})
>>> context.finished
[(1,), (2,), (0,)]

or grow in a planted tree, a function from the output so far and a seed to the next step, and a reward judges them:

>>> def count_up(output: tuple[int, ...], seed: int | None) -> FakeStep:
...     digit = (seed or 0) % 10
...     text = str(digit)
...     return FakeStep((digit,), text) if len(output) < 2 else FakeStep((digit,), text, FinishReason.EOS, answer=text)
>>> context = FakeSearchContext(count_up, step_scores=lambda candidate: [token / 10 for token in candidate.token_ids])
>>> result = asyncio.run(SEARCH_POLICIES["dvts"](problem, context, DVTS(n=4, beam_width=4)))
>>> result.answer, result.candidates[0].token_ids
('7', (8, 4, 7))
>>> context.kept
[[(0, 0)], [(0, 0, 0)], [(0, 0, 0, 0)]]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tts_orch.records import Candidate, FinishReason, Path, Prefix, Problem, SamplingParams, StepRule
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.classes import equal_classes

__all__ = ["FakeSearchContext", "FakeStep", "PlantedTree", "fake_candidate"]


@dataclass(frozen=True, slots=True)
class FakeStep:
    """What a candidate goes on with.

    Attributes:
        token_ids: its tokens.
        text: its text.
        finish_reason: `step` if the solution goes on after it.
        answer: of the solution so far.
    """

    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason = FinishReason.STEP
    answer: str | None = None


PlantedTree: TypeAlias = Callable[[tuple[int, ...], int | None], FakeStep]
"""From the output so far and the trajectory seed to the next step; without a seed, to the most probable one."""


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
        law: the run's sampling law.
        generated_tokens: tokens of all candidates handed out.
        finished: paths of the candidates handed out, in order.
        cancelled: paths that were asked for and never handed out.
        scored: paths of every `score`, a list a call.
        kept, dropped: paths of every `keep`, a list a call.
    """

    def __init__(
        self,
        script: Mapping[Path, str | Candidate | FakeStep | None] | PlantedTree,
        *,
        delays: Mapping[Path, float] | Callable[[Path], float] | None = None,
        step_scores: Mapping[Path, Sequence[float]] | Callable[[Candidate], Sequence[float]] | None = None,
        fails: Callable[[Path], bool] = lambda path: False,
        token_budget: float = float("inf"),
        seed: int = 0,
    ) -> None:
        """Write the script.

        Args:
            script: what is sampled at each path: a candidate, an answer for a complete one, or the step that the prefix
                goes on with; or a tree, in which lengths of steps are as planted, whatever the step rule says.
            delays: seconds from the call until a path is finished, 0 if not given; equal delays finish in path order.
            step_scores: what the reward model says of each path, or of each candidate; None if there is none.
            fails: which paths end as errors.
            token_budget: once so many tokens are generated, what is asked for is cancelled.
            seed: run seed.
        """
        self.law = SamplingParams()
        self.generated_tokens = 0
        self.finished: list[Path] = []
        self.cancelled: list[Path] = []
        self.scored: list[list[Path]] = []
        self.kept: list[list[Path]] = []
        self.dropped: list[list[Path]] = []
        self._script = script
        self._delay = delays if callable(delays) else lambda path: (delays or {}).get(path, 0.0)
        self._step_scores = step_scores
        self._fails = fails
        self._token_budget = token_budget
        self._seed = seed
        self._texts: dict[tuple[int, ...], str] = {}

    @property
    def has_rewards(self) -> bool:
        """Whether there are step scores."""
        return self._step_scores is not None

    async def root(self, problem: Problem) -> Prefix:
        """Return a prefix of one token."""
        return Prefix(problem.id, np.zeros(1, dtype=np.int32), prompt_length=1)

    async def sample(
        self,
        prefixes: Sequence[Prefix],
        *,
        n: int,
        first: int = 0,
        step: StepRule | None = None,
        law: SamplingParams | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Candidate, None]:
        """Yield candidates in the order of their delays."""
        places = [(prefix, (*prefix.path, child)) for prefix in prefixes for child in range(first, first + n)]
        waiting = sorted(places, key=lambda place: (self._delay(place[1]), place[1]))
        elapsed = 0.0
        try:
            while waiting:
                prefix, path = waiting[0]
                delay = self._delay(path)
                await asyncio.sleep(delay - elapsed)
                elapsed = delay
                waiting.pop(0)
                self.finished.append(path)
                candidate = self._sampled(prefix, path, step, law or self.law)
                self.generated_tokens += candidate.n_new
                self._texts[candidate.token_ids] = candidate.text
                yield candidate
        finally:
            self.cancelled.extend(sorted(path for _, path in waiting))

    def _sampled(self, prefix: Prefix, path: Path, step: StepRule | None, law: SamplingParams) -> Candidate:
        if self.generated_tokens >= self._token_budget:
            return self._continued(prefix, path, [FakeStep((), "", FinishReason.CANCELLED)])
        if self._fails(path):
            return self._continued(prefix, path, [FakeStep((), "", FinishReason.ERROR)])
        if callable(self._script):
            seed = trajectory_seed(self._seed, prefix.problem_id, path) if law.temperature else None
            return self._continued(prefix, path, _grown(self._script, _output(prefix), seed, is_whole=step is None))
        entry = self._script[path]
        if isinstance(entry, FakeStep):
            return self._continued(prefix, path, [entry])
        return entry if isinstance(entry, Candidate) else fake_candidate(entry, path, problem_id=prefix.problem_id)

    def _continued(self, prefix: Prefix, path: Path, steps: Sequence[FakeStep]) -> Candidate:
        before = _output(prefix)
        token_ids = before + tuple(token for step in steps for token in step.token_ids)
        text = self._texts.get(before, "") + "".join(step.text for step in steps)
        return Candidate(
            problem_id=prefix.problem_id,
            path=path,
            seed=trajectory_seed(self._seed, prefix.problem_id, path),
            token_ids=token_ids,
            text=text,
            finish_reason=steps[-1].finish_reason,
            answer=steps[-1].answer,
            verify_steps=1,
            parent=prefix.parent or (),
            n_before=len(before),
        )

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Return the step scores that were given."""
        self.scored.append([candidate.path for candidate in candidates])
        scores = self._step_scores
        if callable(scores):
            return [list(scores(candidate)) for candidate in candidates]
        return [list((scores or {})[candidate.path]) for candidate in candidates]

    async def append(self, prefix: Prefix, text: str) -> Prefix:
        """Return the prefix with a token for every byte of the text."""
        added = tuple(text.encode())
        before = _output(prefix)
        self._texts[before + added] = self._texts.get(before, "") + text
        return replace(prefix, token_ids=np.concatenate([prefix.token_ids, np.asarray(added, np.int32)]))

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition by equal answer texts."""
        return equal_classes([candidate.answer for candidate in candidates])

    async def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate] = ()) -> None:
        """Record a search step."""
        self.kept.append([candidate.path for candidate in kept])
        self.dropped.append([candidate.path for candidate in dropped])


def _output(prefix: Prefix) -> tuple[int, ...]:
    return tuple(prefix.token_ids[prefix.prompt_length :].tolist())


def _grown(tree: PlantedTree, output: tuple[int, ...], seed: int | None, *, is_whole: bool) -> list[FakeStep]:
    steps = [tree(output, seed)]
    while is_whole and steps[-1].finish_reason is FinishReason.STEP:
        output += steps[-1].token_ids
        steps.append(tree(output, seed))
    return steps
