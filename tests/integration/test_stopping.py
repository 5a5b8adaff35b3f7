"""Stopping rules over verifiers in the event loop: the same stop on any cluster, and nothing that runs on after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests.integration.local_verifier import LocalVerifier, at, plan_of, run, searched, services_of
from tts_orch.actors.search_controller import SearchController
from tts_orch.actors.search_plan import CandidateJournal, SearchServices, VolatileJournal
from tts_orch.config import MajorityVote
from tts_orch.journal import Journal
from tts_orch.policies.search.context import SearchContext
from tts_orch.policies.search.majority_vote import majority_vote
from tts_orch.records import Chunk, DecodeRequest, FinishReason, Problem, SearchResult
from tts_orch.stopping_config import AdaptiveConsistency, DeepConf, EarlyStopping, StoppingConfig
from tts_orch.tasks.task import Extraction

pytestmark = pytest.mark.timeout(60)

RULES = [
    AdaptiveConsistency(threshold=0.9),
    EarlyStopping(window=3, in_flight=7),
    DeepConf(warm_up=5, confidence_window=4, keep_percent=60, consensus=0.7),
]


def last_number_is_small(problem: Problem, text: str) -> Extraction:
    return Extraction(str(int(text.split()[-1]) < 30 if text else None))


class UnhurriedVerifier(LocalVerifier):
    """Leaves a rule the time to decide before the next candidates end."""

    async def exchange(
        self, submit: Sequence[DecodeRequest], cancel: Sequence[str], acknowledged: int
    ) -> tuple[int, list[Chunk]]:
        await asyncio.sleep(0.004)
        return await super().exchange(submit, cancel, acknowledged)


async def vote(rule: StoppingConfig, problem: Problem, context: SearchContext) -> SearchResult:
    return await majority_vote(problem, context, MajorityVote(n=40, stopping=rule))


def solve(
    rule: StoppingConfig,
    *verifiers: LocalVerifier,
    n_started: int = 1,
    journal: CandidateJournal | None = None,
) -> SearchResult:
    def services(controller: SearchController) -> SearchServices:
        return replace(services_of(controller), extract=last_number_is_small)

    plan = plan_of(4, policy=partial(vote, rule), journal=journal or VolatileJournal())
    work = searched(Problem("p", "prompt"), plan, *verifiers, n_started=n_started, services=services)
    result: SearchResult = run(work)
    return result


def seen(result: SearchResult) -> list[object]:
    """Return what a seed must fix."""
    candidates = [(one.path, one.token_ids, one.finish_reason, one.lowest_confidence) for one in result.candidates]
    return [result.answer, result.votes, result.chosen, result.stopped_by, candidates]


@pytest.mark.parametrize("rule", RULES)
def test_the_stop_is_the_same_on_any_cluster(rule: StoppingConfig) -> None:
    alone = solve(rule, LocalVerifier("a"))
    assert alone.stopped_by == rule.name
    assert len(alone.candidates) < 40
    three = [LocalVerifier(name, capacity=2) for name in "abc"]
    assert seen(solve(rule, *three, n_started=3)) == seen(alone)
    dying = LocalVerifier("a", at(6, fault="die"))
    assert seen(solve(rule, dying, LocalVerifier("b"), LocalVerifier("c"), n_started=2)) == seen(alone)
    assert seen(solve(rule, LocalVerifier("a", at(2, 5, 6, fault="lose")))) == seen(alone)


@pytest.mark.parametrize("rule", RULES)
def test_what_runs_is_cancelled_and_counted(rule: AdaptiveConsistency | EarlyStopping | DeepConf) -> None:
    verifier = UnhurriedVerifier("a", capacity=8)
    result = solve(rule, verifier)
    assert verifier.decoder.is_idle
    assert verifier.cancelled
    assert len(result.candidates) < len(verifier.submitted) < len(result.candidates) + rule.in_flight
    assert result.kept_tokens < result.generated_tokens == verifier.decoder.committed


@pytest.mark.parametrize("rule", RULES)
def test_a_stopped_search_is_not_done_again(rule: StoppingConfig, tmp_path: Path) -> None:
    journal, verifier = Journal(tmp_path), LocalVerifier("b")
    first = solve(rule, LocalVerifier("a"), journal=journal)
    again = solve(rule, verifier, journal=journal)
    assert seen(again) == seen(first)
    done = {f"p/{one.path[0]}" for one in first.candidates}
    assert not done & {request.candidate_id.partition("#")[0] for request in verifier.requests}
    journal.close()


class RefusingVerifier(LocalVerifier):
    """Cannot decode one of the candidates."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(name)
        self._refused = f"p/{number}#"

    def _take(self, submit: Sequence[DecodeRequest], cancel: Sequence[str]) -> None:
        refused = [request for request in submit if request.candidate_id.startswith(self._refused)]
        for request in refused:
            nothing = np.zeros(0)
            self._chunks.append(
                Chunk(
                    request.candidate_id,
                    len(request.token_ids),
                    nothing.astype(np.int32),
                    nothing,
                    nothing,
                    nothing,
                    finish_reason=FinishReason.ERROR,
                    message="refused",
                )
            )
        super()._take([request for request in submit if request not in refused], cancel)


@pytest.mark.parametrize("number", range(5))
def test_one_of_the_first_that_failed_and_is_done_again_changes_nothing(number: int, tmp_path: Path) -> None:
    rule, journal = RULES[2], Journal(tmp_path)
    unbroken = solve(rule, LocalVerifier("a"))
    failed = solve(rule, RefusingVerifier("a", number), journal=journal)
    assert failed.candidates[number].finish_reason is FinishReason.ERROR
    resumed = solve(rule, verifier := LocalVerifier("b"), journal=journal)
    assert seen(resumed) == seen(unbroken)
    assert len(verifier.submitted) < len(unbroken.candidates), "did all again"
    journal.close()


def test_the_cut_is_at_the_token_that_lost_its_confidence() -> None:
    result = solve(RULES[2], LocalVerifier("a"))
    cut = [one for one in result.candidates[5:] if not one.is_solution]
    assert cut
    assert all(one.tail_confidence == one.lowest_confidence for one in cut), "went on after its confidence was lost"
