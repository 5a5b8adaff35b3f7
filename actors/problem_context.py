"""What a search policy sees of the world while it works on one problem."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Final

from tts_orch.actors._live_candidate import LiveCandidate
from tts_orch.actors.search_plan import SearchPlan, SearchServices
from tts_orch.errors import ConfigError
from tts_orch.records import (
    Candidate,
    DecodeRequest,
    Path,
    Prefix,
    Problem,
    SamplingParams,
    StepRule,
)
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.candidates import assemble_candidate

__all__ = ["ProblemContext"]

_SETTLE_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A candidate on its way."""

    prefix: Prefix
    path: Path
    seed: int
    law: SamplingParams
    live: LiveCandidate


class ProblemContext:
    """The `SearchContext` of one problem.

    Args:
        problem: what is solved.
        order: its place among the problems; earlier ones are served first.
        plan: how problems are searched.
        services: shared with the other problems.

    Attributes:
        generated_tokens: tokens generated for the problem so far, cancelled candidates included.
    """

    def __init__(self, problem: Problem, order: int, plan: SearchPlan, services: SearchServices) -> None:
        self.generated_tokens = 0
        self._problem = problem
        self._order = order
        self._plan = plan
        self._services = services
        self._scopes: set[str] = set()  # entered and not left
        self._sampled: list[_Sampled] = []
        self._ending: list[asyncio.Task[Candidate]] = []

    async def root(self, problem: Problem) -> Prefix:
        """Return the prefix of the rendered prompt; see `SearchContext`."""
        token_ids = self._services.tokenise(problem)
        return Prefix(problem.id, token_ids, len(token_ids))

    async def sample(
        self,
        prefixes: Sequence[Prefix],
        *,
        n: int,
        step: StepRule | None = None,
        law: SamplingParams | None = None,
        priority: int = 0,
    ) -> AsyncGenerator[Candidate, None]:
        """Yield continuations as they finish, journaled ones first; see `SearchContext`."""
        if step is not None:
            raise ConfigError("step: candidates are sampled whole; leave the step rule out")
        finished: list[Candidate] = []
        sampled: list[_Sampled] = []
        for prefix, path in ((prefix, (*prefix.path, i)) for prefix in prefixes for i in range(n)):
            seed = trajectory_seed(self._plan.seed, prefix.problem_id, path)
            earlier = self._plan.journal.finished(prefix.problem_id, path, seed)
            if earlier is None:
                sampled.append(self._submit(prefix, path, seed, law or self._plan.law, priority))
            else:
                finished.append(earlier)
        ending = [asyncio.ensure_future(self._end(one)) for one in sampled]
        self._sampled.extend(sampled)
        self._ending.extend(ending)
        try:
            for candidate in finished:
                self.generated_tokens += candidate.n_tokens
                self._services.on_candidate(candidate)
                yield candidate
            for next_ended in asyncio.as_completed(ending):
                yield await next_ended
        finally:
            self._cancel(sampled)

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Refuse: there is no reward model."""
        raise ConfigError("score: no reward model is configured; use a method that does without, such as majority_vote")

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition candidates by equivalent answers; see `SearchContext`."""
        answers = [candidate.answer for candidate in candidates]
        return await asyncio.to_thread(self._services.answer_classes, answers)

    async def keep(self, candidates: Sequence[Candidate]) -> None:
        """Journal a search step; see `SearchContext`."""
        self._plan.journal.keep(candidates)

    async def close(self) -> None:
        """Cancel what is open, wait, for a while, until it has ended and is counted; drop the draft statistics.

        Raises:
            RunError: a candidate could not be journaled.
        """
        self._cancel(self._sampled)
        if self._ending:
            await asyncio.wait(self._ending, timeout=_SETTLE_WITHIN_S)
        for scope in list(self._scopes):
            self._leave(scope)
        await self._services.scopes.settle()
        for task in self._ending:
            if task.done() and not task.cancelled():
                task.result()

    def _cancel(self, sampled: Sequence[_Sampled]) -> None:
        for one in sampled:
            self._services.controller.cancel(one.live)

    def _submit(self, prefix: Prefix, path: Path, seed: int, law: SamplingParams, priority: int) -> _Sampled:
        request = DecodeRequest(
            candidate_id=f"{prefix.problem_id}/{'.'.join(map(str, path))}",
            token_ids=prefix.token_ids,
            prompt_length=prefix.prompt_length,
            seed=seed,
            law=law,
            scope=self._enter(path, law),
            statistics_from=prefix.statistics_from,
            use_drafts=self._plan.use_drafts,
            priority=priority,
            attempt=self._plan.attempt,
        )
        live = self._services.controller.decode(request, prefix.problem_id, self._order)
        return _Sampled(prefix, path, seed, law, live)

    def _enter(self, path: Path, law: SamplingParams) -> str:
        scope = self._services.scopes.name(self._problem, path, law)
        if scope not in self._scopes:
            self._services.scopes.enter(scope)
            self._scopes.add(scope)
        return scope

    def _leave(self, scope: str) -> None:
        if scope in self._scopes:
            self._scopes.remove(scope)
            self._services.scopes.leave(scope)

    async def _end(self, sampled: _Sampled) -> Candidate:
        decoded = await sampled.live.decoded
        if self._services.scopes.end_with_candidates:
            self._leave(sampled.live.request.scope)
        candidate = assemble_candidate(
            self._problem,
            sampled.path,
            sampled.seed,
            sampled.law,
            decoded.chunk,
            decode=self._services.decode,
            extract=self._services.extract,
            output_before=sampled.prefix.token_ids[sampled.prefix.prompt_length :].tolist(),
            worker=decoded.worker,
            fingerprint=decoded.fingerprint,
        )
        self.generated_tokens += len(decoded.chunk.token_ids)
        self._plan.journal.record(candidate)
        self._services.on_candidate(candidate)
        return candidate
