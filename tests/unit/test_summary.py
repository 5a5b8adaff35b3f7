"""The run in numbers: denominators, and when measures at k say anything."""

from __future__ import annotations

from typing import Any

import pytest

from tts_orch.cli.summary_table import summary_table
from tts_orch.method_config import DVTS, BestOfN, MajorityVote
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.results import ProblemResult
from tts_orch.summary import DecodingTime, summarise

PROBLEM = Problem("p", "?", answer="8")
TIME = DecodingTime(2.0, 8)


def candidate(index: int, answer: str | None, **changes: Any) -> Candidate:
    plain = {"token_ids": (1, 2), "text": "", "finish_reason": FinishReason.EOS, "answer": answer, "verify_steps": 1}
    return Candidate("p", (index,), index, **{**plain, **changes})


def accuracy(candidates: list[Candidate], method: Any = None, **changes: Any) -> dict[str, Any]:
    method = method or BestOfN(n=len(candidates))
    found = SearchResult("p", method.name, "8", candidates, **changes)
    measures = summarise([ProblemResult.of(PROBLEM, found, method)], 1, TIME)["accuracy"]
    assert measures is not None
    return {
        name: {k: at["mean"] for k, at in value.items()} if name.endswith("at") else value
        for name, value in measures.items()
    }


def test_failed_and_unanswered_candidates_stay_in_denominators() -> None:
    failed = candidate(2, None, finish_reason=FinishReason.ERROR)
    measures = accuracy([candidate(0, "8"), candidate(1, None), failed, candidate(3, "9")])
    assert measures["at_1"]["mean"] == 0.25
    assert measures["pass_at"] == pytest.approx({"1": 0.25, "2": 0.5, "4": 1.0})
    assert measures["pass_hat_at"] == pytest.approx({"1": 0.25, "2": 0.0, "4": 0.0})
    assert measures["majority_at"] == pytest.approx({"1": 0.25, "2": (2 + 1 / 2) / 6, "4": 0.5})
    assert "best_at" not in measures


def test_measures_by_score_are_those_of_the_method() -> None:
    scores = [(0.9, 0.2), (0.5, 0.6), (0.4, 0.7), ()]
    candidates = [
        candidate(i, answer, step_scores=steps) for i, (answer, steps) in enumerate(zip("8998", scores, strict=True))
    ]
    by_last = accuracy(candidates)
    assert by_last["best_at"] == pytest.approx({"1": 0.25, "2": 1 / 6, "4": 0.0})  # 9 beats 8 wherever it is drawn
    by_minimum = accuracy(candidates, BestOfN(n=4, aggregation="min"))
    assert by_minimum["weighted_at"] == pytest.approx({"1": 0.25, "2": 1 / 6, "4": 0.0})


def test_a_score_without_an_answer_never_wins() -> None:
    candidates = [candidate(0, "8", step_scores=(0.5,)), candidate(1, None, step_scores=(1.0,))]
    assert accuracy(candidates)["best_at"] == {"1": 0.5, "2": 1.0}


def test_searches_over_steps_and_early_stops_have_no_measures_at_k() -> None:
    candidates = [candidate(i, "8") for i in range(3)]
    for measures in (
        accuracy(candidates, DVTS(n=12, beam_width=4)),
        accuracy(candidates, MajorityVote(n=4), stopped_by="early_stopping"),
    ):
        assert measures["pass_at"] == measures["majority_at"] == {}
        assert measures["of_method"]["mean"] == measures["any_candidate"]["mean"] == 1.0


def rows_of(found: SearchResult, **more: Any) -> dict[str, str]:
    """What the table says of a run of one problem."""
    summary = summarise([ProblemResult.of(PROBLEM, found, BestOfN(n=1))], 1, TIME)
    table = summary_table({**summary, "verification": "keyed", "plain_decoding": None, **more}, "best_of_n")
    names, values, _intervals = (list(column.cells) for column in table.columns)
    return dict(zip(map(str, names), map(str, values), strict=True))


def test_the_table_says_what_keeping_prefixes_saved() -> None:
    found = SearchResult("p", "best_of_n", "8", [candidate(0, "8")], reward_tokens=5, reward_tokens_whole=1200)
    assert rows_of(found)["reward tokens"] == "5 read of 1,200"


def test_the_table_says_that_the_store_failed_where_it_did() -> None:
    found = SearchResult("p", "best_of_n", "8", [candidate(0, "8")])
    assert "statistics store" not in rows_of(found, store={"failures": 0.0})
    assert rows_of(found, store={"failures": 7.0})["statistics store"] == "7 exchanges failed, which costs speed alone"


def test_unfinished_candidates_do_not_vote() -> None:
    half = candidate(1, "8", finish_reason=FinishReason.STEP)
    assert accuracy([candidate(0, None), half])["at_1"]["mean"] == 0.0


def test_what_is_not_graded_has_no_accuracy() -> None:
    found = SearchResult("p", "majority_vote", "8", [candidate(0, "8")])
    result = ProblemResult.of(Problem("p", "?"), found, MajorityVote(n=1))
    assert summarise([result], 1, TIME)["accuracy"] is None
    assert summarise([], 1, TIME)["accuracy"] is None


def test_a_line_of_results_comes_back_equal() -> None:
    candidates = [candidate(0, "8", step_scores=(0.5,)), candidate(1, None)]
    result = ProblemResult.of(PROBLEM, SearchResult("p", "best_of_n", "8", candidates, (0,)), BestOfN(n=2))
    assert (result.candidate_scores, result.candidate_paths) == ((0.5, None), ((0,), (1,)))
    line = result.to_json()
    assert ProblemResult.from_json(line) == result
    with pytest.raises(TypeError):
        ProblemResult.from_json({name: value for name, value in line.items() if name != "answer"})
