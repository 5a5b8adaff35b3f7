"""`tts-orch tree` on a finished run of a toy target: what is counted, held out, written and shown."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.toys import save_toy
from tts_orch.cli import execute
from tts_orch.cli.tree_steps import RunPart, decoded_steps
from tts_orch.config import BestOfN, EngineConfig, LawConfig, RunConfig
from tts_orch.engine.decoder import Decoder
from tts_orch.engine.target import load_target
from tts_orch.policies.drafting.tree_file import read_learned_tree
from tts_orch.policies.drafting.tree_shape import heap_tree
from tts_orch.records import Candidate, DecodeRequest, FinishReason
from tts_orch.replay.recovery import FinishedRun
from tts_orch.run_folder import RunFolder
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems
from tts_orch.tasks.prompts import render

N_PROBLEMS, N_TRAJECTORIES = 4, 3


def finished_run(folder: Path, target: Path, temperature: float = 0.7) -> Path:
    """Decode some problems plainly and write their run folder."""
    problems = folder.with_suffix(".jsonl")
    lines = ({"id": f"p{number}", "prompt": f"the box {number} + {number} = "} for number in range(N_PROBLEMS))
    problems.write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = RunConfig(
        problems=problems,
        engine=EngineConfig(target=str(target), drafter="none", kv_memory_gib=0.1),
        method=BestOfN(n=N_TRAJECTORIES),
        law=LawConfig(temperature=temperature, max_new_tokens=24),
        template="raw",
        out=folder,
    )
    model = load_target(config.engine)
    with RunFolder(config, read_problems(problems)) as run:
        run.begin({"weights": model.weights_id, "numerics": model.numerics}, [model.fingerprint])
        decoder, law = Decoder(model, None, config.engine), config.law.sampling_params()
        for problem in read_problems(problems):
            prompt = render(problem, model.tokenizer, "raw")
            for i in range(N_TRAJECTORIES):
                seed, tokens = trajectory_seed(0, problem.id, [i]), []
                decoder.submit(DecodeRequest("a", prompt, len(prompt), seed, law))
                while not decoder.is_idle:
                    tokens += [token for chunk in decoder.step() for token in chunk.token_ids.tolist()]
                run.journal.record(Candidate(problem.id, (i,), seed, tuple(tokens), "", FinishReason.LENGTH))
    return folder


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, target: Path) -> Path:
    return finished_run(tmp_path_factory.mktemp("runs") / "toy", target)


def test_a_tree_is_learned_and_shown(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
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
        str(run),
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
    assert execute(["tree", "show", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "12 nodes, by level: " in shown
    assert f"0: {100 * learned.counts[0] / learned.verify_steps:.1f}" in shown
    assert f"{learned.held_out[0].tau:.3f}" in shown


def test_counts_and_taus_are_those_of_the_runs_tokens(run: Path, tmp_path: Path) -> None:
    """Each verify step commits what it accepted and one token more, so that counts add up to the tokens."""
    out = tmp_path / "tree.json"
    options = ["--holdout", "0", "--initial-nodes", "30", "--nodes", "30", "--measure-on", str(run), "--out", str(out)]
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


def test_the_tree_of_the_package_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tree", "show"]) == 0
    assert "held out, gsm8k_train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (["optimize", "nowhere"], "nowhere: no manifest.json; give a folder of `tts-orch run`"),
        (["show", "nowhere.json"], "nowhere.json: No such file or directory; give a file of `tts-orch tree optimize`"),
        (["optimize", "nowhere", "--nodes", "0"], "0 is not in the range 1<=x<=1000"),
    ],
)
def test_mistakes_are_one_line(command: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["tree", *command]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1
