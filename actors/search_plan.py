"""What searches are given: how to search, where finished candidates are written down, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tts_orch.actors._budget import Budget
from tts_orch.actors._open_scopes import OpenScopes
from tts_orch.actors.search_controller import SearchController
from tts_orch.budget_config import NO_LIMITS, PROBLEM_BUDGET_ENDS, RUN_BUDGET_ENDS, BudgetConfig
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, IntArray, Path, Problem, SamplingParams, SearchResult
from tts_orch.rewards.base import StepScores
from tts_orch.rewards.own_scores import OwnScores
from tts_orch.tasks.task import Extraction

__all__ = [
    "BoundPolicy",
    "CandidateJournal",
    "Rewards",
    "SearchPlan",
    "SearchServices",
    "VolatileJournal",
    "any_drafter",
]

BoundPolicy: TypeAlias = Callable[[Problem, SearchContext], Awaitable[SearchResult]]
"""A search policy with its settings bound."""

Rewards: TypeAlias = Callable[[Problem, Sequence[Candidate], asyncio.Event], Awaitable[Sequence[StepScores]]]
"""What a reward model says of candidates of a problem, one answer each: a failure where it has said nothing by the time
that the event, a deadline, is set."""


class CandidateJournal(Protocol):
    """Remembers finished candidates and their scores, so that nothing is done twice."""

    def finished(self, problem_id: str, path: Path, seed: int) -> Candidate | None:
        """Return the candidate if it came to its end before."""
        ...

    def record(self, candidate: Candidate) -> None:
        """Write down a candidate that ended, failed and cancelled ones included."""
        ...

    def scores(self, candidate: Candidate) -> StepScores | None:
        """Return what a reward model said of the candidate with these tokens."""
        ...

    def record_scores(self, candidate: Candidate, scores: StepScores) -> None:
        """Write down what a reward model said; a candidate that it could not score is to be asked for again."""
        ...

    def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate]) -> None:
        """Write down a search step."""
        ...


class VolatileJournal:
    """Remembers nothing: searches outside a run folder."""

    def finished(self, problem_id: str, path: Path, seed: int) -> Candidate | None:
        """Return None."""
        return None

    def record(self, candidate: Candidate) -> None:
        """Do nothing."""

    def scores(self, candidate: Candidate) -> StepScores | None:
        """Return None."""
        return None

    def record_scores(self, candidate: Candidate, scores: StepScores) -> None:
        """Do nothing."""

    def keep(self, kept: Sequence[Candidate], dropped: Sequence[Candidate]) -> None:
        """Do nothing."""


async def any_drafter(problem: Problem) -> str:
    """Assign no drafter to a problem."""
    return ""


@dataclass(frozen=True, slots=True)
class SearchServices:
    """What the searches of an orchestrator share.

    Attributes:
        controller: decodes.
        scopes: which draft statistics a candidate uses.
        tokenise: renders a problem into prompt tokens.
        encode: text to tokens, none added.
        decode: tokens to text, special tokens left out.
        extract: finds the answer in a text.
        answer_classes: class number for each answer to a problem, None for an abstention; may take long.
        on_candidate: called with every candidate that ended.
        rewards: asks the reward model, None where there is none.
        own_scores: scores steps by what the target said of them, which takes no model; None if that is not wanted.
        assign: which of several drafters drafts for a problem, empty where verifiers choose.
    """

    controller: SearchController
    scopes: OpenScopes
    tokenise: Callable[[Problem], IntArray]
    encode: Callable[[str], IntArray]
    decode: Callable[[Sequence[int]], str]
    extract: Callable[[Problem, str], Extraction]
    answer_classes: Callable[[Problem, Sequence[str | None]], list[int | None]]
    on_candidate: Callable[[Candidate], None]
    rewards: Rewards | None = None
    own_scores: OwnScores | None = None
    assign: Callable[[Problem], Awaitable[str]] = any_drafter


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How problems are searched.

    Attributes:
        policy: the search policy, its settings bound.
        n: candidates that a problem is expected to have open at once.
        law: sampling law where the policy gives none.
        seed: run seed, part of every trajectory seed.
        journal: of the run.
        use_drafts: False decodes plainly.
        attempt: how often these candidates were begun before; rejection verification draws anew for each attempt.
        limits: what may be spent.
    """

    policy: BoundPolicy
    n: int
    law: SamplingParams
    seed: int
    journal: CandidateJournal
    use_drafts: bool = True
    attempt: int = 0
    limits: BudgetConfig = NO_LIMITS

    def problem_budget(self) -> Budget:
        """Return what a problem may spend; its time does not run yet."""
        return Budget(self.limits.problem_seconds, self.limits.problem_tokens, PROBLEM_BUDGET_ENDS)

    def run_budget(self) -> Budget:
        """Return what all problems together may spend; its time runs."""
        budget = Budget(self.limits.run_seconds, self.limits.run_tokens, RUN_BUDGET_ENDS)
        budget.start()
        return budget
