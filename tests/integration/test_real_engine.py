"""The whole chain without a fake: two workers with drafts give what one gives without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.toys import save_toy
from tts_orch.actors.engine_loading import load_engine
from tts_orch.config import LawConfig, MajorityVote
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Candidate, Problem

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("ray_session")]

PROBLEMS = [Problem(f"p{i}", prompt) for i, prompt in enumerate(("10 + 1 = 11\n10 + 11 =", "the an in the an in"))]
LAW = LawConfig(temperature=0.6, max_new_tokens=60, stop=("##",))


def solve(folder: Path, **settings: Any) -> tuple[list[Candidate], dict[str, float]]:
    with Orchestrator(
        str(folder), make_engine=load_engine, kv_memory_gib=0.02, threads=1, max_batch=3, template="raw", **settings
    ) as session:
        results = session.search_many(PROBLEMS, MajorityVote(n=6), seed=5, law=LAW)
        candidates = [candidate for result in results for candidate in result.candidates]
        return candidates, session.statistics()


def what_counts(candidates: list[Candidate]) -> dict[tuple[str, tuple[int, ...]], tuple[object, ...]]:
    return {(c.problem_id, c.path): (c.token_ids, c.text, c.finish_reason, c.answer) for c in candidates}


def test_two_drafting_workers_give_the_candidates_of_a_plain_one(tmp_path: Path) -> None:
    save_toy(tmp_path)
    plain, plain_statistics = solve(tmp_path, workers=1, drafter="none")
    drafted, statistics = solve(tmp_path, workers=2, drafter="stand")
    assert what_counts(drafted) == what_counts(plain)
    assert len(drafted) == 12
    assert len({candidate.worker for candidate in drafted}) == 2
    assert plain_statistics["draft_nodes"] == 0
    assert statistics["accepted_nodes"] > 0
