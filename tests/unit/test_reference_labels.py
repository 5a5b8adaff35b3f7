"""Steps held against the results of a reference solution, by cases made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts_orch.config import EngineConfig
from tts_orch.errors import ConfigError, ProblemError
from tts_orch.records import Candidate, FinishReason, Problem
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.template_problems import template_problems
from tts_orch.training.labelled_data import rollout_data
from tts_orch.training.reference_labels import label_by_reference
from tts_orch.training.settings import RewardTrainingConfig, RolloutSettings

PROBLEM = Problem("p", "3 * 4 + 2?", answer="14", step_answers=("12", "14"))


def labels(text: str, reason: FinishReason = FinishReason.EOS) -> list[tuple[float | None, ...]]:
    candidate = Candidate("p", (0,), 0, (1,), text, reason, None)
    return [one.labels for one in label_by_reference(PROBLEM, [candidate], ["\n\n"])]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 * 4 = 12.\n\n12 + 2 = 14.\n\nThe answer is 14.", (1, 1, 1)),
        ("3 * 4 = 12.\n\n12 + 2 = 15.\n\nThe answer is 15.", (1, 0, 0)),
        ("3 * 4 = 13.\n\n13 + 1 = 14.\n\nThe answer is 14.", (0, 0, 0)),  # right by luck
        ("3 * 4 = 12.", (1,)),
        ("She counts.\n\n3 * 4 = 12.", (0, 0)),
    ],
)
def test_a_step_is_right_if_it_and_all_before_it_are(text: str, expected: tuple[float, ...]) -> None:
    assert labels(text) == [expected]


def test_only_solutions_are_labelled() -> None:
    assert labels("3 * 4 = 12.", FinishReason.ERROR) == []


def test_equal_solutions_are_labelled_once() -> None:
    candidates = [Candidate("p", (i,), i, (1,), "3 * 4 = 12.", FinishReason.EOS, None) for i in range(3)]
    assert len(label_by_reference(PROBLEM, candidates, ["\n\n"])) == 1


def test_the_worked_solution_of_a_template_problem_is_right_throughout() -> None:
    for problem in template_problems("train", 12):
        text = "\n\n".join(
            [*(f"so it is {one}." for one in problem.step_answers or ()), f"The answer is {problem.answer}."]
        )
        (solution,) = label_by_reference(
            problem, [Candidate("p", (0,), 0, (1,), text, FinishReason.EOS, None)], ["\n\n"]
        )
        assert set(solution.labels) == {1.0}


def test_a_problem_without_results_is_named(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text('{"id": "a", "prompt": "1 + 1?", "answer": "2"}\n')
    config = RewardTrainingConfig(
        problems=file, out=tmp_path, rollout=RolloutSettings(estimate="reference"), engine=EngineConfig(target="toy")
    )
    with pytest.raises(ProblemError, match=r"problem 'a' has no step_answers"):
        rollout_data(config, file, lambda path, problems: [])


def test_without_rollouts_there_are_no_shares_of_rollouts() -> None:
    with pytest.raises(ConfigError, match="rollouts"):
        RolloutSettings(rollouts=0)
    assert RolloutSettings(rollouts=0, estimate="reference").rollouts == 0


def test_results_of_steps_are_read_from_problem_files(tmp_path: Path) -> None:
    file = tmp_path / "problems.jsonl"
    file.write_text('{"id": "a", "prompt": "1 + 1 + 1?", "answer": "3", "step_answers": [2, "3"]}\n')
    assert read_problems(file)[0].step_answers == ("2", "3")
    file.write_text('{"id": "a", "prompt": "1 + 1 + 1?", "step_answers": "2"}\n')
    with pytest.raises(ProblemError, match="step_answers"):
        read_problems(file)
