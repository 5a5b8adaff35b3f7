"""How much sooner drafts are: the same problems with and without them, and under keyed verification the same tokens."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING

from tts_orch.config import RunConfig
from tts_orch.errors import RunError
from tts_orch.records import Problem, SearchResult

if TYPE_CHECKING:
    from tts_orch.orchestrator import Orchestrator

__all__ = ["PlainComparison", "compare_with_plain"]


@dataclass(frozen=True, slots=True)
class PlainComparison:
    """Two decodings of the same problems on the same workers.

    Attributes:
        n_problems: problems decoded both ways.
        verification: under `keyed` the tokens are equal; under `rejection` each way drew its own from the same law.
        n_tokens: tokens without drafts.
        n_drafted_tokens: tokens with drafts.
        plain_s: seconds without drafts.
        drafted_s: seconds with drafts.
    """

    n_problems: int
    verification: str
    n_tokens: int
    n_drafted_tokens: int
    plain_s: float
    drafted_s: float

    @property
    def speedup(self) -> float:
        """How many times as many tokens a second drafts made."""
        more_tokens = max(self.n_drafted_tokens, 1) / max(self.n_tokens, 1)
        return more_tokens * self.plain_s / self.drafted_s


def compare_with_plain(orchestrator: Orchestrator, config: RunConfig, problems: Sequence[Problem]) -> PlainComparison:
    """Decode problems with and without drafts, in alternating order, outside any journal.

    Raises:
        RunError: a token differs under keyed verification.
    """
    orchestrator.forget()  # drafts must not know these very tokens from the run
    seconds, n_tokens = {True: 0.0, False: 0.0}, {True: 0, False: 0}
    for number, problem in enumerate(problems):
        found: dict[bool, SearchResult] = {}
        for use_drafts in (False, True) if number % 2 else (True, False):
            started = time.perf_counter()
            found[use_drafts] = orchestrator.search(
                problem, config.method, seed=config.seed, law=config.law, use_drafts=use_drafts
            )
            seconds[use_drafts] += time.perf_counter() - started
            n_tokens[use_drafts] += found[use_drafts].generated_tokens
        if config.engine.verification == "keyed":
            _check_equal(problem, plain=found[False], drafted=found[True])
    return PlainComparison(
        len(problems), config.engine.verification, n_tokens[False], n_tokens[True], seconds[False], seconds[True]
    )


def _check_equal(problem: Problem, *, plain: SearchResult, drafted: SearchResult) -> None:
    for without, with_drafts in zip(plain.candidates, drafted.candidates, strict=True):
        for position, tokens in enumerate(zip_longest(without.token_ids, with_drafts.token_ids)):
            if tokens[0] != tokens[1]:
                raise RunError(
                    f"{problem.id}: candidate {list(without.path)} has token {tokens[0]} at output position {position} without"
                    f" drafts and {tokens[1]} with drafts; only `bitwise` numerics promise equal tokens in rounded arithmetic"
                )
