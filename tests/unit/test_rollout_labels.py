"""From rollouts to labels, by cases made by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toys import EOS_ID, toy_tokenizer
from tts_orch.errors import RunFolderError
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.rewards.steps import split_steps
from tts_orch.testing import FakeSearchContext
from tts_orch.training.labelled_solutions import LabelledSolution
from tts_orch.training.rollout_cache import RolloutLabels, collect_labels
from tts_orch.training.rollout_labels import label_steps
from tts_orch.training.rollouts import Policy, rollout_policy
from tts_orch.training.settings import RolloutSettings
from tts_orch.training.step_ends import step_ends

TOKENIZER = toy_tokenizer()
DELIMITERS = ("\n\n",)
PROBLEM = Problem("p", "1 + 1 + 1?", answer="3")


def decode(token_ids: Sequence[int]) -> str:
    return str(TOKENIZER.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def ends(candidate: Candidate) -> list[int]:
    return step_ends(candidate, decode, DELIMITERS)


def solution(text: str, *path: int, reason: FinishReason = FinishReason.EOS, problem_id: str = "p") -> Candidate:
    token_ids = (*TOKENIZER.encode(text, add_special_tokens=False), EOS_ID)
    answer = text.rpartition("=")[2].strip() or None
    return Candidate(problem_id, path, 0, token_ids, text, reason, answer)


@given(st.lists(st.sampled_from(["a", "b.", "\n", "\n\n", " ", "1", ".\n", "é"]), max_size=14).map("".join))
def test_steps_end_with_the_token_that_completes_their_delimiter(text: str) -> None:
    candidate = solution(text)
    steps = split_steps(text, DELIMITERS)
    found = ends(candidate)
    assert len(found) == len(steps)
    assert found == sorted(found)
    assert found[-1:] == [candidate.n_tokens][: len(found)]
    for number, end in enumerate(found[:-1], start=1):
        assert split_steps(decode(candidate.token_ids[:end]), DELIMITERS) == steps[:number]
        assert (
            "\n\n" not in decode(candidate.token_ids[: end - 1]).lstrip().replace("\n\n", "", number - 1) or number > 1
        )


def test_a_token_that_spans_the_delimiter_belongs_to_the_step_before() -> None:
    token_ids = (*TOKENIZER.convert_tokens_to_ids(["a", ".\n", "\n1"]), EOS_ID)
    candidate = Candidate("p", (0,), 0, token_ids, decode(token_ids), FinishReason.EOS)
    assert ends(candidate) == [3, 4]


def test_what_comes_with_a_stop_string_is_no_step() -> None:
    whole = solution("a\n\n= 3\n\nq:")
    stopped = Candidate("p", (0,), 0, whole.token_ids, "a\n\n= 3\n\n", FinishReason.STOP_STRING, "3")
    assert len(ends(whole)) == 3
    assert ends(stopped) == [ends(whole)[0], whole.n_tokens]


# ---- the policy


def run_policy(script: dict[tuple[int, ...], Candidate], settings: RolloutSettings) -> SearchResult:
    return asyncio.run(rollout_policy(settings, ends)(PROBLEM, FakeSearchContext(dict(script))))


def test_every_beginning_is_completed_once() -> None:
    script = {
        (0,): solution("a\n\nb\n\n= 3", 0),
        (1,): solution("a\n\nc\n\n= 4", 1),  # begins like the first
        (2,): solution("= 3", 2),  # one step: nothing to complete
        (3,): solution("a\n\nd", 3, reason=FinishReason.ERROR),
    }
    prefixes = [(0, 1), (0, 2), (1, 2)]
    for place in prefixes:
        script |= {(*place, j): solution("a\n\nb\n\n= 3", *place, j) for j in range(2)}
    result = run_policy(script, RolloutSettings(solutions=4, rollouts=2))
    assert [c.path for c in result.candidates] == [
        (0,),
        (1,),
        (2,),
        (3,),
        *((*p, j) for p in prefixes for j in range(2)),
    ]


def test_solutions_of_one_step_need_no_rollouts() -> None:
    result = run_policy({(0,): solution("= 3", 0)}, RolloutSettings(solutions=1, rollouts=2))
    assert len(result.candidates) == 1


# ---- the labels


def labels(
    candidates: Sequence[Candidate], problem: Problem = PROBLEM, **settings: object
) -> list[tuple[float | None, ...]]:
    rollouts = RolloutSettings(**{"solutions": 1, "rollouts": 2, **settings})
    return [one.labels for one in label_steps(problem, candidates, rollouts, ends, DELIMITERS)]


FIRST = solution("a\n\nb\n\n= 3", 0)
AFTER_A = [solution("a\n\nc\n\n= 4", 0, 1, 0), solution("a\n\nd\n\n= 5", 0, 1, 1), solution("a\n\ne\n\n= 3", 0, 1, 2)]
AFTER_B = [solution("a\n\nb\n\n= 4", 0, 2, 0), solution("a\n\nb\n\n= 6", 0, 2, 1)]


def test_the_label_is_the_share_of_right_outcomes_of_all_that_begin_so() -> None:
    # after "a": 3, 4, 5, 3, 4, 6; after "a", "b": 3, 4, 6; the rest is whole, or too few pass through it
    assert labels([FIRST, *AFTER_A, *AFTER_B]) == [
        (2 / 6, 1 / 3, 1.0),
        (None, None, 0.0),
        (None, None, 0.0),
        (None, None, 1.0),
        (None, None, 0.0),
        (None, None, 0.0),
    ]


def test_a_hard_label_asks_whether_any_outcome_is_right() -> None:
    assert labels([FIRST, *AFTER_A, *AFTER_B], estimate="hard")[0] == (1.0, 1.0, 1.0)
    wrong = [solution("a\n\n= 4", 0), solution("a\n\n= 5", 0, 1, 0)]
    assert labels(wrong, estimate="hard")[0] == (0.0, 0.0)


def test_what_did_not_end_neither_counts_nor_is_labelled() -> None:
    failed = solution("a\n\nb\n\n= 3", 0, 1, 3, reason=FinishReason.ERROR)
    cancelled = solution("a\n\nb\n\n= 3", 0, 1, 4, reason=FinishReason.CANCELLED)
    assert labels([FIRST, *AFTER_A, *AFTER_B, failed, cancelled]) == labels([FIRST, *AFTER_A, *AFTER_B])


def test_a_copy_counts_as_an_outcome_and_is_not_labelled_again() -> None:
    copy = solution("a\n\nb\n\n= 3", 0, 1, 3)
    found = labels([FIRST, *AFTER_A, *AFTER_B, copy])
    assert found[0] == (3 / 7, 2 / 4, 1.0)
    assert len(found) == 6


def test_an_abstention_is_a_wrong_outcome() -> None:
    assert labels([solution("a\n\nb", 0), solution("a\n\n= 3", 0, 1, 0)])[0] == (0.5, 0.0)


def test_answers_are_compared_by_meaning() -> None:
    assert labels([solution("= 3.0", 0)]) == [(1.0,)]


# ---- what is on disk


class Generate:
    """Runs the policy on a script for each problem, and remembers for which."""

    def __init__(self, script: dict[str, list[Candidate]], stop_after: int = 99) -> None:
        self.script = script
        self.stop_after = stop_after
        self.asked: list[str] = []

    def __call__(self, problems: Sequence[Problem], policy: Policy) -> Generator[SearchResult, None, None]:
        for problem in problems:
            if len(self.asked) == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(problem.id)
            context = FakeSearchContext({c.path: c for c in self.script[problem.id]})
            yield asyncio.run(policy(problem, context))


PROBLEMS = [Problem(name, "?", answer="3") for name in "xyz"]
SCRIPT = {p.id: [solution("= 3" if p.id == "x" else "= 4", 0, problem_id=p.id)] for p in PROBLEMS}


def collect(file: Path, generate: Generate, done: list[int] | None = None) -> list[RolloutLabels]:
    settings = RolloutSettings(solutions=1, rollouts=1)

    def label(problem: Problem, result: SearchResult) -> list[LabelledSolution]:
        return label_steps(problem, result.candidates, settings, ends, DELIMITERS)

    note = (lambda n: None) if done is None else done.append
    return collect_labels(PROBLEMS, generate, rollout_policy(settings, ends), label, file, note)


def test_an_interrupted_collection_goes_on_where_it_was(tmp_path: Path) -> None:
    whole = collect(tmp_path / "whole.jsonl", Generate(SCRIPT))
    assert [one.solutions[0].labels for one in whole] == [(1.0,), (0.0,), (0.0,)]
    with pytest.raises(KeyboardInterrupt):
        collect(tmp_path / "labels.jsonl", Generate(SCRIPT, stop_after=2))
    again, done = Generate(SCRIPT), list[int]()
    assert collect(tmp_path / "labels.jsonl", again, done) == whole
    assert again.asked == ["z"]
    assert done == [2, 3]
    third = Generate(SCRIPT)
    assert collect(tmp_path / "labels.jsonl", third) == whole
    assert third.asked == []


def test_a_problem_with_failed_samples_is_done_again(tmp_path: Path) -> None:
    failed = [solution("= 4", 0, reason=FinishReason.ERROR, problem_id="y")]
    first = collect(tmp_path / "labels.jsonl", Generate({**SCRIPT, "y": failed}))
    assert [len(one.solutions) for one in first] == [1, 0, 1]
    again = Generate(SCRIPT)
    assert [len(one.solutions) for one in collect(tmp_path / "labels.jsonl", again)] == [1, 1, 1]
    assert again.asked == ["y"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_text('{"problem_id": "x"}\n')
    with pytest.raises(RunFolderError, match=r"labels\.jsonl:1: no labelled problem; delete"):
        collect(tmp_path / "labels.jsonl", Generate(SCRIPT))
