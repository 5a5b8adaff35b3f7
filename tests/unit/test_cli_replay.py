"""`tts-orch replay`: drafters side by side on a recorded run, and what is wrong with its settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.finished_runs import finished_run
from tests.neural_toys import toy_facts, toy_head
from tests.recordings import TARGET, draw_forced_laws, journal, run_config
from tests.toys import save_toy
from tts_orch.cli import execute
from tts_orch.drafters.checkpoint import save_head
from tts_orch.policies.drafting.tree_file import DEFAULT_TREE
from tts_orch.replay.recovery import FinishedRun, recover


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder whose recording was made before."""
    config = run_config(tmp_path)
    draw_forced_laws(monkeypatch)
    journal(config, {"a": 2, "b": 1})
    recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
    monkeypatch.setenv("COLUMNS", "120")
    return config.out


def test_drafters_stand_side_by_side(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = ["--drafter", "prompt_lookup", "--drafter", "stand", "--lockstep", "2", "--json", str(report)]
    assert execute(["replay", str(folder), *arguments]) == 0
    remark, heading, *lines = capsys.readouterr().out.splitlines()
    assert remark.startswith("stand learns from rejected nodes, whose laws no recording has")
    assert heading.split() == ["prompt_lookup", "stand"]
    figures = json.loads(report.read_text())
    assert figures["trajectories"] == 3
    taus = [figures["drafters"][name]["tau"] for name in ("prompt_lookup", "stand")]
    assert lines[0].split() == ["tau", *(f"{tau:.3f}" for tau in taus)]
    assert all(figures["drafters"][name]["committed_tokens"] == 21 for name in ("prompt_lookup", "stand"))


def test_as_many_nodes_as_pay_where_rows_are_dear(folder: Path, tmp_path: Path) -> None:
    costs, report = tmp_path / "costs.json", tmp_path / "report.json"
    costs.write_text("[[1, 1.0], [2, 2.0], [64, 64.0]]")
    arguments = ["--node-budget", "--cost-curve", str(costs), "--json", str(report)]
    assert execute(["replay", str(folder), *arguments]) == 0
    assert json.loads(report.read_text())["drafters"]["stand"]["draft_nodes"] <= 4


@pytest.mark.parametrize("content", ["{", "[]", "[[1]]", "[[2, 1.0], [1, 2.0]]", '[[1, "x"]]', "[[1, -1.0]]"])
def test_a_bad_cost_curve_is_one_line(
    content: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text(content)
    assert execute(["replay", str(folder), "--node-budget", "--cost-curve", str(costs)]) == 2
    assert f"tts-orch: {costs}: no cost curve; give" in capsys.readouterr().err


def test_a_draft_tree_goes_to_the_drafter_that_has_one(folder: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    arguments = [
        "--drafter",
        "anpd",
        "--drafter",
        "stand",
        "--draft-tree",
        str(DEFAULT_TREE),
        "--json",
        str(report),
    ]
    assert execute(["replay", str(folder), *arguments]) == 0
    settings = {name: of["settings"] for name, of in json.loads(report.read_text())["drafters"].items()}
    assert (settings["anpd"]["draft_tree"], settings["stand"]["draft_tree"]) == (None, str(DEFAULT_TREE.resolve()))


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--drafter", "anpd", "--draft-tree", str(DEFAULT_TREE)], "only stand drafts by it, not anpd"),
        (["--node-budget", "--draft-tree", str(DEFAULT_TREE)], "chooses nodes by itself; leave one of both out"),
        (["--cost-curve", str(DEFAULT_TREE)], "only --node-budget reads it; add that, or leave the curve out"),
        (["--routing", "merged"], "routing: merged is between several drafters"),
        (["--drafters", "math=.", "--routing-steps", "3"], "routing_steps: only routings first_steps"),
        (
            ["--drafters", "math=.", "--routing", "merged", "--drafter", "anpd", "--drafter", "stand"],
            "--routing: anpd and stand do not draft together; give one --drafter",
        ),
        (["--json", "nodir/x.json"], "nodir/x.json: there is no folder nodir; make it, or name another file"),
    ],
)
def test_settings_that_do_not_go_together_are_one_line(
    folder: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["replay", str(folder), *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_trained_drafters_are_replayed_alone_and_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, head, report = save_toy(tmp_path / "toy"), tmp_path / "head", tmp_path / "report.json"
    run = finished_run(tmp_path / "run", target)
    head.mkdir()
    save_head(head, toy_head(replace(toy_facts(torch.float32), weights_id="")))
    monkeypatch.setenv("COLUMNS", "120")
    trained = ["--drafters", f"head={head}", "--drafters", f"same={target}", "--draft-depth", "3"]
    together = ["--drafter", "stand", "--routing", "merged", "--max-nodes", "8"]
    assert execute(["replay", str(run), "--limit", "2", *trained, *together, "--json", str(report)]) == 0
    heading = capsys.readouterr().out.splitlines()[2]  # after a remark on each drafter that learns from rejected nodes
    assert heading.split() == ["stand", "head", "same", "routing", "merged"]
    figures = json.loads(report.read_text())["drafters"]
    taus = {name: of["tau"] for name, of in figures.items()}
    assert taus["same"] > 2 > taus["head"] >= 1
    assert taus["routing merged"] > taus["stand"]
    assert {of["committed_tokens"] for of in figures.values()} == {figures["stand"]["committed_tokens"]}
    assert figures["routing merged"]["settings"]["drafters"] == {"head": str(head), "same": str(target)}
    assert figures["head"]["settings"]["routing"] is None
