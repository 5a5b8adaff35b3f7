"""The whole chain without a fake: drafts, workers and shared statistics change the speed, and no more than that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.toys import save_toy, toy_tokenizer
from tts_orch.actors.engine_loading import load_engine
from tts_orch.config import DVTS, LawConfig, MajorityVote
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Candidate, Problem, SearchResult

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("ray_session")]

PROBLEMS = [Problem(f"p{i}", prompt) for i, prompt in enumerate(("10 + 1 = 11\n10 + 11 =", "the an in the an in"))]
LAW = LawConfig(temperature=0.6, max_new_tokens=60, stop=("##",))
GREEDY = LawConfig(temperature=0, max_new_tokens=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


def orchestrator(folder: Path, **settings: Any) -> Orchestrator:
    return Orchestrator(
        str(folder), make_engine=load_engine, kv_memory_gib=0.02, threads=1, max_batch=3, template="raw", **settings
    )


def solve(folder: Path, **settings: Any) -> tuple[list[Candidate], dict[str, float]]:
    with orchestrator(folder, **settings) as session:
        results = session.search_many(PROBLEMS, MajorityVote(n=6), seed=5, law=LAW)
        candidates = [candidate for result in results for candidate in result.candidates]
        return candidates, session.statistics()


def what_counts(candidates: Sequence[Candidate]) -> dict[tuple[str, tuple[int, ...]], tuple[object, ...]]:
    return {(c.problem_id, c.path): (c.token_ids, c.text, c.finish_reason, c.answer) for c in candidates}


def test_two_drafting_workers_give_the_candidates_of_a_plain_one(folder: Path) -> None:
    plain, plain_statistics = solve(folder, workers=1, drafter="none")
    drafted, statistics = solve(folder, workers=2, drafter="stand", statistics_scope="run")
    assert what_counts(drafted) == what_counts(plain)
    assert len(drafted) == 12
    assert len({candidate.worker for candidate in drafted}) == 2
    assert plain_statistics["draft_nodes"] == 0
    assert statistics["accepted_nodes"] > 0


@pytest.mark.parametrize(("sharing", "is_shared"), [("problem", False), ("run", True)])
def test_problems_share_statistics_as_far_as_the_scope_goes(folder: Path, sharing: str, is_shared: bool) -> None:
    settings = {"drafter": "stand", "node_budget": False, "max_nodes": 12, "statistics_scope": sharing}
    with orchestrator(folder, **settings) as session:

        def verify_steps(name: str) -> int:
            problem = Problem(name, PROBLEMS[0].prompt)
            (candidate,) = session.search(problem, MajorityVote(n=1), law=GREEDY).candidates
            return candidate.verify_steps

        first, second = verify_steps("first"), verify_steps("second")  # the same tokens: greedy, of one prompt
        session.forget()
        assert verify_steps("third") == first
        assert second < 0.7 * first if is_shared else second == first


def test_rejection_draws_anew_when_a_problem_is_searched_again(folder: Path) -> None:
    with orchestrator(folder, verification="rejection", statistics_scope="run", node_budget=False) as session:
        results = [session.search(PROBLEMS[0], MajorityVote(n=4), seed=5, law=LAW) for _ in range(2)]
        assert session.statistics()["accepted_nodes"] > 0
    drawn = {candidate.token_ids for result in results for candidate in result.candidates}
    assert len(drawn) == 8  # the coins of the first search have taught the tables of the second


def _reward(problem: Problem, steps: Sequence[str]) -> list[float]:
    return [sum(map(ord, "".join(steps))) % 101 / 100]


def test_a_search_step_by_step_computes_its_prefixes_once_and_gives_the_same_with_drafts_on_two_workers(
    folder: Path,
) -> None:
    method = DVTS(n=8, beam_width=2, delimiters=("\n", "e", "a"), min_step_tokens=3, max_step_tokens=12, max_steps=5)

    def search(**settings: Any) -> tuple[list[SearchResult], dict[str, float]]:
        with orchestrator(folder, reward=_reward, **settings) as session:
            found = session.search_many(PROBLEMS, method, seed=5, law=LAW)
            return sorted(found, key=lambda result: result.problem_id), session.statistics()

    plain, statistics = search(workers=1, drafter="none")
    drafted, _ = search(workers=2, drafter="stand", node_budget=False, max_nodes=8)
    for one, other in zip(plain, drafted, strict=True):
        assert what_counts(one.candidates) == what_counts(other.candidates)
        assert [candidate.step_scores for candidate in one.candidates] == [c.step_scores for c in other.candidates]
        assert (one.answer, one.generated_tokens) == (other.answer, other.generated_tokens)
    assert max(len(candidate.path) for result in plain for candidate in result.candidates) == 6
    tokenizer = toy_tokenizer()
    prompts = [len(tokenizer(problem.prompt)["input_ids"]) for problem in PROBLEMS]
    assert statistics["prefill_tokens"] == sum(prompts) - len(prompts), "a prefix was computed again"
