"""The benchmark from its command line, on a toy target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.toys import save_toy
from tts_orch.bench.methods import METHODS, ablations, chosen_methods
from tts_orch.bench.plan import BenchPlan, quick, seconds_by_part, timing_cells
from tts_orch.bench.recordings import first_problems
from tts_orch.bench.tables import tables
from tts_orch.bench.trees import equal_tree, write_trees
from tts_orch.bench.workloads import RANDOM_TEXT
from tts_orch.cli import execute
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.tree_file import read_tree
from tts_orch.replay.recording import Recording

PROBLEMS = ["1 + 1 = ? 1 + 1 = 10. 1 + 1 =", "the box in the box is in the", "an a, an a, an a"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a toy target and problems, and the results of a quick run over all parts."""
    folder = tmp_path_factory.mktemp("bench")
    save_toy(folder / "toy")
    lines = [json.dumps({"id": f"p{i}", "prompt": prompt}) for i, prompt in enumerate(PROBLEMS)]
    (folder / "sums.jsonl").write_text("\n".join(lines))
    assert execute(command(folder)) == 0
    return folder


def command(folder: Path, *more: str) -> list[str]:
    places = ["--target", str(folder / "toy"), "--data", str(folder), "--out", str(folder / "out")]
    workloads = ["--workloads", "sums"]
    methods = [word for name in ("plain", "prompt_lookup", "stand", "stand_budget") for word in ("--methods", name)]
    return ["bench", "drafting", *places, *workloads, *methods, "--workers", "1", "--quick", *more]


def results(folder: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((folder / "out/results.json").read_text())
    return read


def test_every_part_leaves_results_tables_and_curves(folder: Path) -> None:
    found = results(folder)
    assert set(found) == {"record", "replay", "ablation", "overlap", "coupling", "alternation", "real", "timing"}
    names = {path.name for path in (folder / "out").glob("*.png")}
    assert names >= {"tau_by_index.png", "tau_by_index_real.png", "tau_by_nodes.png", "ngram_overlap.png", "speed.png"}
    assert "float32" in (folder / "out/tables.md").read_text()


def test_replayed_tau_is_committed_over_steps_and_plain_is_one(folder: Path) -> None:
    rows = results(folder)["replay"]["rows"]
    tokens = {(row["workload"], row["temperature"]): row["committed_tokens"] for row in rows}
    for row in rows:
        assert row["tau"] == pytest.approx(row["committed_tokens"] / row["verify_steps"])
        assert row["committed_tokens"] == tokens[row["workload"], row["temperature"]]
        assert row["wasted_nodes"] == row["draft_nodes"] - row["accepted_nodes"]
        if row["method"] == "plain":
            assert row["tau"] == 1
    assert max(row["tau"] for row in rows if row["method"] == "stand") > 1


def test_real_runs_and_replays_share_problems(folder: Path) -> None:
    rows = {row["method"]: row for row in results(folder)["real"]["rows"]}
    assert rows["from_rejected"]["is_real"]
    assert not rows["stand"]["is_real"]
    assert len({row["committed_tokens"] for row in rows.values()}) == 1


def test_timed_tokens_are_those_of_plain_decoding_and_the_share_follows(folder: Path) -> None:
    rows = results(folder)["timing"]["rows"]
    assert {row["workload"] for row in rows} == {"sums", RANDOM_TEXT}
    for row in rows:
        assert row["pairs"] == 2
        assert row["ratio"] / row["bound"] == pytest.approx(row["share_of_bound"])
        assert row["a_a_band"]["low"] <= row["a_a_band"]["high"]


def test_recordings_are_used_again(folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (folder / "out/recordings").glob("sums-T*.npz")}
    assert execute(command(folder, "--parts", "record")) == 0
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_first_problems_cuts_outputs_and_keeps_their_laws(folder: Path) -> None:
    (path,) = (folder / "out/recordings").glob("alternating-*.npz")
    recording = Recording.load(path)
    short = first_problems(recording, 2, 5)
    assert short.problem_ids == recording.problem_ids[:2]
    for cut, whole in zip(short.trajectories, recording.trajectories, strict=False):
        np.testing.assert_array_equal(cut.tokens, whole.tokens[:5])
        assert len(cut.law_probs) == len(cut.tokens)


def test_tables_of_some_parts_are_written_without_the_others(folder: Path) -> None:
    found = results(folder)
    text = tables({"overlap": found["overlap"]})
    assert "n-gram overlap" in text
    assert "Speed" not in text


def test_dry_run_prints_times_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "drafting", "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "timing" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_replay_without_recordings_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "drafting", "--out", str(tmp_path), "--quick", "--parts", "replay"]) == 2
    assert "run the part `record` first" in capsys.readouterr().err


def test_unknown_methods_and_workloads_are_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match="no method 'stnd'"):
        chosen_methods(["stnd"])
    assert execute(command(folder, "--workloads", "nowhere", "--parts", "record")) == 2
    assert "no file nowhere" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperatures": (0.0,)}, "one of them must be above 0"),
        ({"workloads": ("a",), "real_workloads": ("b",)}, "b is not among the workloads"),
        ({"nodes": ()}, "nodes"),
    ],
)
def test_impossible_plans_are_one_line(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        BenchPlan(out=tmp_path, **settings)


def test_methods_and_ablations_are_settings_that_exist(tmp_path: Path) -> None:
    trees = write_trees(tmp_path)
    for method in (*METHODS, *ablations()):
        config = method.config(80, trees)
        assert config.max_nodes == 80
        assert config.node_budget == (method.name == "stand_budget")
    assert len({method.name for method in METHODS}) == len(METHODS) == 10


def test_equal_trees_have_the_same_number_of_children_everywhere(tmp_path: Path) -> None:
    tree = read_tree(equal_tree(tmp_path, 3, 2))
    assert np.bincount(tree.parent[1:]).tolist() == [3, 3, 3, 3]
    assert tree.depth.max() == 2


def test_plan_grows_with_its_sizes_and_quick_is_quick(tmp_path: Path) -> None:
    plan = BenchPlan(out=tmp_path)
    larger = plan.model_copy(update={"problems_per_workload": 50, "pairs": 20})
    small, large = (sum(seconds_by_part(one, 10, 10).values()) for one in (plan, larger))
    assert sum(seconds_by_part(quick(plan), 10, 10).values()) < small / 10
    assert large > small
    assert {cell.batch for cell in timing_cells(plan)} == {1, 4, 8, 16}
