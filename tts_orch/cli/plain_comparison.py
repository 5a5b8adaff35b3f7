"""The check behind the promise: the same problems with and without drafts give the same tokens, only sooner."""

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
    """Two decodings of the same problems on the same workers, with equal tokens.

    Attributes:
        n_problems: problems decoded both ways.
        n_tokens: tokens of each way.
        plain_s: seconds without drafts.
        drafted_s: seconds with drafts.
    """

    n_problems: int
    n_tokens: int
    plain_s: float
    drafted_s: float

    @property
    def speedup(self) -> float:
        """How many times faster drafts made it."""
        return self.plain_s / self.drafted_s


def compare_with_plain(orchestrator: Orchestrator, config: RunConfig, problems: Sequence[Problem]) -> PlainComparison:
    """Decode problems with and without drafts, in alternating order, outside any journal.

    Raises:
        RunError: a token differs.
    """
    seconds = {True: 0.0, False: 0.0}
    n_tokens = 0
    for number, problem in enumerate(problems):
        found: dict[bool, SearchResult] = {}
        for use_drafts in (False, True) if number % 2 else (True, False):
            started = time.perf_counter()
            found[use_drafts] = orchestrator.search(
                problem, config.method, seed=config.seed, law=config.law, use_drafts=use_drafts
            )
            seconds[use_drafts] += time.perf_counter() - started
        _check_equal(problem, plain=found[False], drafted=found[True])
        n_tokens += found[False].kept_tokens
    return PlainComparison(len(problems), n_tokens, plain_s=seconds[False], drafted_s=seconds[True])


def _check_equal(problem: Problem, *, plain: SearchResult, drafted: SearchResult) -> None:
    for without, with_drafts in zip(plain.candidates, drafted.candidates, strict=True):
        for position, tokens in enumerate(zip_longest(without.token_ids, with_drafts.token_ids)):
            if tokens[0] != tokens[1]:
                raise RunError(
                    f"{problem.id}: candidate {list(without.path)} has token {tokens[0]} at output position {position} without"
                    f" drafts and {tokens[1]} with drafts; only `bitwise` numerics promise equal tokens in rounded arithmetic"
                )
