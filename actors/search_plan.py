"""What searches are given: how to search, where finished candidates are written down, and what they share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from tts_orch.actors._open_scopes import OpenScopes
from tts_orch.actors.search_controller import SearchController
from tts_orch.policies.search.context import SearchContext
from tts_orch.records import Candidate, IntArray, Path, Problem, SamplingParams, SearchResult

__all__ = ["BoundPolicy", "CandidateJournal", "SearchPlan", "SearchServices", "VolatileJournal"]

BoundPolicy: TypeAlias = Callable[[Problem, SearchContext], Awaitable[SearchResult]]
"""A search policy with its settings bound."""


class CandidateJournal(Protocol):
    """Remembers finished candidates, so that nothing is decoded twice."""

    def finished(self, problem_id: str, path: Path, seed: int) -> Candidate | None:
        """Return the candidate if it came to its end before."""
        ...

    def record(self, candidate: Candidate) -> None:
        """Write down a candidate that ended, failed and cancelled ones included."""
        ...

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Write down a search step."""
        ...


class VolatileJournal:
    """Remembers nothing: searches outside a run folder."""

    def finished(self, problem_id: str, path: Path, seed: int) -> Candidate | None:
        """Return None."""
        return None

    def record(self, candidate: Candidate) -> None:
        """Do nothing."""

    def keep(self, candidates: Sequence[Candidate]) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class SearchServices:
    """What the searches of an orchestrator share.

    Attributes:
        controller: decodes.
        scopes: which draft statistics a candidate uses.
        tokenise: renders a problem into prompt tokens.
        decode: tokens to text, special tokens left out.
        extract: finds the answer in a text.
        answer_classes: class number for each answer, None for an abstention; may take long.
        on_candidate: called with every candidate that ended.
    """

    controller: SearchController
    scopes: OpenScopes
    tokenise: Callable[[Problem], IntArray]
    decode: Callable[[Sequence[int]], str]
    extract: Callable[[Problem, str], str | None]
    answer_classes: Callable[[Sequence[str | None]], list[int | None]]
    on_candidate: Callable[[Candidate], None]


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
    """

    policy: BoundPolicy
    n: int
    law: SamplingParams
    seed: int
    journal: CandidateJournal
    use_drafts: bool = True
    attempt: int = 0
