"""What a search policy sees of the world while it works on one problem."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tts_orch.actors._budget import Budget
from tts_orch.actors._candidate_place import CandidatePlace, places
from tts_orch.actors._lineage import Lineage
from tts_orch.actors._live_candidate import Decoded, LiveCandidate
from tts_orch.actors.search_plan import SearchPlan, SearchServices
from tts_orch.budget_config import DEADLINES
from tts_orch.errors import ConfigError
from tts_orch.records import Candidate, Prefix, Problem, SamplingParams, StepRule
from tts_orch.rewards.base import StepScores

__all__ = ["ProblemContext"]

_SETTLE_WITHIN_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Sampled:
    """A candidate on its way."""

    place: CandidatePlace
    live: LiveCandidate


class ProblemContext:
    """The `SearchContext` of one problem.

    Args:
        problem: what is solved.
        order: its place among the problems; earlier ones are served first.
        plan: how problems are searched.
        services: shared with the other problems.
        run_budget: what all problems together may spend.
        drafter: which of several drafters drafts for it, empty where verifiers choose.

    Attributes:
        generated_tokens: tokens generated for the problem so far, cancelled candidates included.
        verify_steps: verify steps that these took.
        reward_tokens: tokens a reward model read.
        reward_tokens_whole: tokens that it would have read without what it kept of earlier steps.
        lineage: of the candidates that ended.
        stopped_by: what was spent before all was decoded that the policy asked for; empty if nothing was.
    """

    def __init__(
        self,
        problem: Problem,
        order: int,
        plan: SearchPlan,
        services: SearchServices,
        run_budget: Budget,
        drafter: str = "",
    ) -> None:
        self.generated_tokens = 0
        self.verify_steps = 0
        self.reward_tokens = 0
        self.reward_tokens_whole = 0
        self.lineage = Lineage()
        self.stopped_by = ""
        self._problem = problem
        self._order = order
        self._drafter = drafter
        self._plan = plan
        self._services = services
        self._scopes: set[str] = set()  # entered and not left
        self._sampled: list[_Sampled] = []
        self._ending: list[asyncio.Task[Candidate]] = []
        self._budget = plan.problem_budget()
        self._run_budget = run_budget
        self._deadline = asyncio.Event()
        self._budget.watch(self._stop)
        self._run_budget.watch(self._stop)

    @property
    def law(self) -> SamplingParams:
        """The run's sampling law."""
        return self._plan.law

    async def root(self, problem: Problem) -> Prefix:
        """Return the prefix of the rendered prompt; see `SearchContext`."""
        token_ids = self._services.tokenise(problem)
        return Prefix(problem.id, token_ids, len(token_ids))

    async def append(self, prefix: Prefix, text: str) -> Prefix:
        """Return the prefix with a text behind it; see `SearchContext`."""
        return replace(prefix, token_ids=np.concatenate([prefix.token_ids, self._services.encode(text)]))

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
        """Yield continuations as they finish, those first that need no decoding; see `SearchContext`."""
        at_once: list[Candidate] = []
        sampled: list[_Sampled] = []
        wanted = places(prefixes, range(first, first + n), self._plan.seed, law or self._plan.law, step)
        journaled = [self._journaled(place) for place in wanted]
        for place, earlier in zip(wanted, journaled, strict=True):
            candidate = earlier or self._refused(place)
            if candidate is None:
                sampled.append(self._submit(place, priority))
            else:
                at_once.append(candidate)
        ending = [asyncio.ensure_future(self._end(one)) for one in sampled]
        self._sampled.extend(sampled)
        self._ending.extend(ending)
        try:
            for candidate in at_once:
                self._hand_over(candidate)
                yield candidate
            for next_ended in asyncio.as_completed(ending):
                yield await next_ended
        finally:
            self._cancel(sampled)

    @property
    def has_rewards(self) -> bool:
        """Whether there is a reward model, or the target's own word stands in for one."""
        return self._services.rewards is not None or self._services.own_scores is not None

    async def score(self, candidates: Sequence[Candidate]) -> list[list[float]]:
        """Return step scores, journaled ones without asking again; see `SearchContext`."""
        own_scores = self._services.own_scores
        if own_scores is not None:
            return [own_scores(self.lineage.of(candidate)) for candidate in candidates]
        journal = self._plan.journal
        known = [journal.scores(candidate) for candidate in candidates]
        unknown = [candidate for candidate, scores in zip(candidates, known, strict=True) if scores is None]
        answers = await self._asked(unknown)
        for candidate, scores in zip(unknown, answers, strict=True):
            journal.record_scores(candidate, scores)
        fresh = iter(answers)
        found = [scores or next(fresh) for scores in known]
        self.reward_tokens += sum(scores.n_tokens for scores in found)
        self.reward_tokens_whole += sum(scores.n_tokens_whole for scores in found)
        return [list(scores.scores) for scores in found]

    async def _asked(self, candidates: Sequence[Candidate]) -> Sequence[StepScores]:
        """Return what the reward model says until a deadline."""
        if self._services.rewards is None:
            raise ConfigError(
                "score: no reward model is configured; use a method that does without, such as majority_vote"
            )
        if not candidates:
            return []
        self._budget.start()
        answers = await self._services.rewards(self._problem, candidates, self._deadline)
        if self._deadline.is_set() and not all(scores.scores for scores in answers):
            self.stopped_by = self.stopped_by or self._budget.spent or self._run_budget.spent
        return answers

    async def answer_classes(self, candidates: Sequence[Candidate]) -> list[int | None]:
        """Partition candidates by equivalent answers; see `SearchContext`."""
        answers = [candidate.answer for candidate in candidates]
        return await asyncio.to_thread(self._services.answer_classes, self._problem, answers)

    async def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate] = ()) -> None:
        """Journal a search step; see `SearchContext`."""
        self._plan.journal.keep(kept, dropped)

    async def close(self) -> None:
        """Cancel what is open, wait, for a while, until it has ended and is counted; drop the draft statistics.

        Raises:
            RunError: a candidate could not be journaled.
        """
        self._budget.close()
        self._run_budget.unwatch(self._stop)
        self._cancel(self._sampled)
        if self._ending:
            await asyncio.wait(self._ending, timeout=_SETTLE_WITHIN_S)
        for scope in list(self._scopes):
            self._leave(scope)
        await self._services.scopes.settle()
        for task in self._ending:
            if task.done() and not task.cancelled():
                task.result()

    def _journaled(self, place: CandidatePlace) -> Candidate | None:
        """Return the candidate if it was decoded before."""
        earlier = self._plan.journal.finished(place.prefix.problem_id, place.path, place.seed)
        if earlier is None or not place.is_place_of(earlier):
            return None
        self._count(earlier.n_new, earlier.verify_steps)
        self._budget.book(earlier.n_new)
        return earlier

    def _refused(self, place: CandidatePlace) -> Candidate | None:
        """Return the candidate as a cancelled one if nothing may be spent any more."""
        spent = self._budget.spent or self._run_budget.spent
        if not spent:
            return None
        self.stopped_by = spent
        return place.candidate(self._problem, Decoded.nothing(len(place.prefix.token_ids)), self._services)

    def _submit(self, place: CandidatePlace, priority: int) -> _Sampled:
        request = place.request(self._plan, self._enter(place), priority)
        request = replace(request, domain=self._problem.domain or "", drafter=self._drafter)
        live = self._services.controller.decode(request, place.prefix.problem_id, self._order, self._on_tokens)
        return _Sampled(place, live)

    def _on_tokens(self, n_tokens: int) -> None:
        self._budget.start()
        self._budget.book(n_tokens)
        self._run_budget.book(n_tokens)

    def _stop(self, spent: str) -> None:
        """Cancel everything, because something is spent."""
        if spent in DEADLINES:
            self._deadline.set()
        if any(not one.live.decoded.done() for one in self._sampled):
            self.stopped_by = self.stopped_by or spent
        self._cancel(self._sampled)

    def _cancel(self, sampled: Sequence[_Sampled]) -> None:
        for one in sampled:
            self._services.controller.cancel(one.live)

    def _enter(self, place: CandidatePlace) -> str:
        scope = self._services.scopes.name(self._problem, place.path, place.law)
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
        candidate = sampled.place.candidate(self._problem, decoded, self._services)
        self._count(len(decoded.chunk.token_ids), decoded.chunk.verify_steps)
        self._plan.journal.record(candidate)
        self._hand_over(candidate)
        return candidate

    def _hand_over(self, candidate: Candidate) -> None:
        self.lineage.add(candidate)
        self._services.on_candidate(candidate)

    def _count(self, n_tokens: int, verify_steps: int) -> None:
        self.generated_tokens += n_tokens
        self.verify_steps += verify_steps
