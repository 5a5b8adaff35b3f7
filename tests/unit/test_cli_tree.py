"""`tts-orch tree` on a finished run of a toy target: what is counted, held out, written and shown."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.finished_runs import N_PROBLEMS, N_TRAJECTORIES, finished_run
from tests.toys import save_toy
from tts_orch.cli import execute
from tts_orch.cli.tree_steps import RunPart, decoded_steps
from tts_orch.policies.drafting.tree_file import read_learned_tree
from tts_orch.policies.drafting.tree_shape import heap_tree
from tts_orch.replay.recovery import FinishedRun


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs") / "toy", target)


@pytest.fixture(scope="module")
def twin(run: Path) -> Path:
    """Return another run, of the same tokens."""
    return shutil.copytree(run, run.with_name("twin"))


def test_a_tree_is_learned_and_shown(
    run: Path, twin: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "tree.json"
    command = [
        "tree",
        "optimize",
        str(run),
        "--nodes",
        "12",
        "--holdout",
        "0.25",
        "--measure-on",
        str(twin),
        "--out",
        str(out),
    ]
    monkeypatch.setattr(sys, "argv", ["tts-orch", *command])
    assert execute(command) == 0
    learned = read_learned_tree(out)
    assert learned.n_nodes == 12
    assert [part.problem_ids for part in learned.data] == [("p0", "p1", "p2")]
    assert [part.data.problem_ids for part in learned.held_out] == [("p3",), ("p0", "p1", "p2", "p3")]
    assert [part.data.n_trajectories for part in learned.held_out] == [3, 12]
    assert learned.initial_tree.n_nodes == 625
    assert learned.command == shlex.join(["tts-orch", *command])
    assert learned.weights_id
    assert learned.tokenizer_id
    assert sum(learned.counts) > 0
    printed = capsys.readouterr().out
    assert f"--no-node-budget --max-nodes 12 --draft-tree {out}" in printed
    assert f"learned from only {learned.verify_steps} verify steps: expect little of it" in printed
    assert execute(["tree", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "12 nodes, by level: " in shown
    assert f"0: {100 * learned.counts[0] / learned.verify_steps:.1f}" in shown
    assert f"{learned.held_out[0].tau:.3f}" in shown


def test_counts_and_taus_are_those_of_the_runs_tokens(run: Path, twin: Path, tmp_path: Path) -> None:
    """Each verify step commits what it accepted and one token more, so that counts add up to the tokens."""
    out = tmp_path / "tree.json"
    options = ["--holdout", "0", "--initial-nodes", "30", "--nodes", "30", "--measure-on", str(twin), "--out", str(out)]
    assert execute(["tree", "optimize", str(run), *options]) == 0
    learned = read_learned_tree(out)
    finished = FinishedRun.read(run)
    n_tokens = RunPart(finished, tuple(finished.problems)).n_tokens
    n_cut = n_tokens - learned.verify_steps - sum(learned.counts)  # a last step has no token behind what it accepted
    assert -N_PROBLEMS * N_TRAJECTORIES <= n_cut <= 0
    (everything,) = learned.held_out
    assert everything.verify_steps == learned.verify_steps  # the same 30 nodes in another order
    assert everything.tau == n_tokens / learned.verify_steps


def test_rejection_decodes_the_problems_once_more(run: Path) -> None:
    shape = heap_tree((0.5, 0.2, 0.1), 20, 5)
    steps = [step for passed in decoded_steps(RunPart(FinishedRun.read(run), ("p1", "p3")), shape) for step in passed]
    assert {step.trajectory for step in steps} == {f"{p}/{i}" for p in ("p1", "p3") for i in range(N_TRAJECTORIES)}
    starts = [
        step.trajectory
        for number, step in enumerate(steps)
        if step.trajectory not in [s.trajectory for s in steps[:number]]
    ]
    assert [name[-1] for name in starts] == ["0", "0", "1", "1", "2", "2"]
    assert any(len(step.accepted) for step in steps)
    n_tokens = {name: sum(len(s.committed) for s in steps if s.trajectory == name) for name in starts}
    assert max(n_tokens.values()) == 24


def test_rejection_trees_say_so(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "tree.json"
    options = [
        "--verification",
        "rejection",
        "--initial-nodes",
        "20",
        "--nodes",
        "8",
        "--limit",
        "2",
        "--out",
        str(out),
    ]
    assert execute(["tree", "optimize", str(run), *options]) == 0
    learned = read_learned_tree(out)
    assert learned.verification == "rejection"
    assert [part.problem_ids for part in learned.data] == [("p0",)]
    assert np.isfinite(learned.held_out[0].tau)


def test_runs_of_another_law_are_refused(
    run: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = finished_run(tmp_path / "other", target, temperature=0.3)
    assert execute(["tree", "optimize", str(run), str(other), "--out", str(tmp_path / "tree.json")]) == 2
    complaint = f"tts-orch: {other}: another sampling law than in {run}; learn a tree for each\n"
    assert capsys.readouterr().err.endswith(complaint)


@pytest.mark.parametrize("again", [[], ["--measure-on"]], ids=["learned from", "measured on"])
def test_a_run_counts_once(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], again: list[str]) -> None:
    same = run.parent / "." / run.name
    assert execute(["tree", "optimize", str(run), *again, f"{same}/", "--out", str(tmp_path / "tree.json")]) == 2
    assert capsys.readouterr().err.endswith("given twice; a run is learned from once, or only measured on\n")


def test_what_is_no_tree_file_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (file := tmp_path / "package.json").write_text('{"name": "x"}')
    assert execute(["tree", "show", str(file)]) == 2
    assert capsys.readouterr().err == f"tts-orch: {file}: not a tree file; give a file of `tts-orch tree optimize`\n"


def test_the_tree_of_the_package_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tree", "show"]) == 0
    assert "held out, gsm8k_train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["optimize", "nowhere"], "nowhere: no manifest.json; give a folder of `tts-orch run`"),
        (["show", "nowhere.json"], "nowhere.json: No such file or directory; give a file of `tts-orch tree optimize`"),
        (["optimize", "nowhere", "--nodes", "0"], "0 is not in the range 1<=x<=1000"),
        (
            ["optimize", "nowhere", "--nodes", "9", "--initial-nodes", "8"],
            "--nodes: 9 of 8 --initial-nodes; keep fewer",
        ),
        (["optimize", "nowhere", "--out", "nodir/t.json"], "nodir/t.json: there is no folder nodir; make it"),
    ],
)
def test_mistakes_are_one_line(command: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tree", *command]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
