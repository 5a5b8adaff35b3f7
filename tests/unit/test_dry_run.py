"""What `tts-orch run --dry-run` says of the work ahead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tts_orch.cli import execute
from tts_orch.cli.dry_run import check_run
from tts_orch.cli.workload import Workload, workload
from tts_orch.config import (
    DVTS,
    BeamSearch,
    BestOfN,
    BudgetForcing,
    MajorityVote,
    MethodConfig,
    ParticleFiltering,
    Rebase,
    RunConfig,
)
from tts_orch.errors import ConfigError
from tts_orch.manifest import Manifest
from tts_orch.records import SearchResult
from tts_orch.results import ProblemResult
from tts_orch.tasks.problems import read_problems


@pytest.mark.parametrize(
    ("method", "work", "is_whole"),
    [
        (BestOfN(), Workload(1, 100), True),
        (MajorityVote(), Workload(1, 100), True),
        (BudgetForcing(ignores=2), Workload(4, 100), False),
        (BeamSearch(max_steps=8), Workload(8, 100), False),
        (ParticleFiltering(max_steps=500), Workload(100, 100), False),  # no step is shorter than a token
        (Rebase(max_steps=8), Workload(8, 100), False),
        (DVTS(max_steps=8, lookahead=1), Workload(16, 200), False),
    ],
)
def test_what_a_candidate_takes(method: MethodConfig, work: Workload, is_whole: bool) -> None:
    assert workload(method, max_new_tokens=100) == work
    assert method.samples_whole is is_whole


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "a", "prompt": "1?"}\n{"id": "b", "prompt": "2?"}\n')
    return {
        "problems": problems,
        "engine": {"target": "toy"},
        "out": tmp_path / "out",
        "law": {"max_new_tokens": 100},
        "method": {"name": "dvts", "n": 8, "beam_width": 4, "max_steps": 5},
        "reward": {"model": "judge", "kind": "judge"},
    }


def work_of(config: RunConfig, capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    check_run(config, **options)
    return [line[2:] for line in capsys.readouterr().out.splitlines() if line.startswith("# ")]


def test_the_work_of_a_tree_search(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert work_of(RunConfig(**settings), capsys, tokens_per_s=0.5) == [
        "2 problems x 8 candidates, of them 16 to decode",
        "2 subtrees a problem",
        "at most 80 sampling calls and 1600 generated tokens",
        "at most 1600 reward tokens, prompts not counted",
        "at most 0:53:20 h at 0.5 tokens/s, as given",
    ]


def test_the_rate_is_the_one_of_the_folder(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    config = RunConfig(**{**settings, "method": {"name": "majority_vote", "n": 4}, "reward": None})
    assert work_of(config, capsys)[2:] == ["time not known before a first run; give --tokens-per-s"]
    config.out.mkdir()
    Manifest.of(config, read_problems(config.problems)).write(config.out / "manifest.json")
    (config.out / "summary.json").write_text(json.dumps({"tokens_per_s": 8.0}))
    assert work_of(config, capsys)[-1] == f"at most 0:01:40 h at 8.0 tokens/s, as measured in {config.out}"


@pytest.mark.parametrize(("stopped_by", "n_missing"), [("", 4), ("token budget", 4), ("token budget of the run", 8)])
def test_what_a_spent_run_budget_stopped_is_still_to_do(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str], stopped_by: str, n_missing: int
) -> None:
    """The run goes on with it, but not with what the budget of its own problem ended."""
    config = RunConfig(**{**settings, "method": {"name": "majority_vote", "n": 4}, "reward": None})
    problems = read_problems(config.problems)
    result = SearchResult("a", "majority_vote", None, stopped_by=stopped_by)
    config.out.mkdir()
    Manifest.of(config, problems).write(config.out / "manifest.json")
    line = json.dumps(ProblemResult.of(problems[0], result, config.method).to_json())
    (config.out / "results.jsonl").write_text(line + "\n")
    assert work_of(config, capsys)[0] == f"2 problems x 4 candidates, of them {n_missing} to decode"


def test_a_rate_is_for_dry_runs(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "p.jsonl", "--target", "toy", "--method", "best_of_n", "--tokens-per-s", "9"]
    assert execute(arguments) == 2
    assert capsys.readouterr().err.startswith("tts-orch: --tokens-per-s: only --dry-run reads it")


def test_stopping_rules_have_options(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    run = ["run", str(settings["problems"]), "--target", "toy", "--method", "majority_vote", "--dry-run"]
    assert execute([*run, "--stopping", "esc", "--stopping-window", "3", "--stopping-order", "completion"]) == 0
    printed = capsys.readouterr().out
    assert "    name: esc\n    window: 3" in printed
    assert "order: completion" in printed
    assert execute([*run, "--stopping", "esc", "--stopping-threshold", "0.9"]) == 2
    assert "threshold: unknown setting of esc" in capsys.readouterr().err


def test_thinking_leaves_room_for_the_answer(settings: dict[str, Any]) -> None:
    method = {"name": "budget_forcing", "thinking_tokens": 100}
    with pytest.raises(ConfigError, match="thinking_tokens: 100 of 100"):
        RunConfig(**{**settings, "method": method})
    RunConfig(**{**settings, "method": {**method, "thinking_tokens": 99}})
