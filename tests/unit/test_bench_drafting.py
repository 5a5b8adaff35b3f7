"""The benchmark from its command line, on a toy target."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.toys import save_toy
from tts_orch.bench.decoding import decode, new_decoder, request
from tts_orch.bench.methods import METHODS, ablations, scope_name
from tts_orch.bench.plan import BenchPlan, quick, seconds_by_part, timing_cells
from tts_orch.bench.recordings import difference, first_tokens, record, requests
from tts_orch.bench.results import ResultFolder
from tts_orch.bench.tables import tables
from tts_orch.bench.trees import equal_tree, write_trees
from tts_orch.bench.workloads import RANDOM_TEXT, random_prompts
from tts_orch.cli import execute
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.target import load_target
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.tree_file import read_tree
from tts_orch.records import SamplingParams
from tts_orch.replay.recording import Recording

COMPARED = ("plain", "prompt_lookup", "stand", "stand_budget")
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


def command(folder: Path, *more: str, out: Path | None = None, methods: Sequence[str] = COMPARED) -> list[str]:
    places = ["--target", str(folder / "toy"), "--data", str(folder), "--out", str(out or folder / "out")]
    workloads = ["--workloads", "sums"]
    names = [word for name in methods for word in ("--methods", name)]
    return ["bench", "drafting", *places, *workloads, *names, "--workers", "1", "--quick", *more]


def forbid_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(config: EngineConfig) -> None:
        raise AssertionError("the target is loaded")

    monkeypatch.setattr("tts_orch.bench.online_parts.load_target", load)


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


def test_trained_drafters_are_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "trained"
    shutil.copytree(folder / "out", out)
    named = [word for name in ("same", "other") for word in ("--drafters", f"{name}={folder / 'toy'}")]
    assert (
        execute(command(folder, *named, "--parts", "replay", "--parts", "real", out=out, methods=["prompt_lookup"]))
        == 0
    )
    parts = json.loads((out / "results.json").read_text())
    for part in ("replay", "real"):
        rows = {row["label"]: row for row in parts[part]["rows"]}
        assert rows["same"]["tau"] > 2
        assert rows["same + other, merged"]["tau"] > 2
    assert "same + other, merged" in (out / "tables.md").read_text()
    assert execute(command(folder, "--drafters", f"math={folder / 'absent'}", "--dry-run")) == 2
    assert "drafters: math: " in capsys.readouterr().err


def test_a_changed_problem_is_recorded_again_and_a_real_run_wants_that(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems, out = tmp_path / "own.jsonl", tmp_path / "out"
    arguments = ["bench", "drafting", "--quick", "--target", str(folder / "toy"), "--out", str(out)]
    arguments += ["--workloads", str(problems), "--methods", "prompt_lookup"]
    recordings = {}
    for prompt in ("a", "an"):
        problems.write_text(json.dumps({"id": "p", "prompt": prompt}))
        assert execute([*arguments, "--parts", "record"]) == 0
        path = next((out / "recordings").glob("own-*-T0.7-*.npz"))
        recordings[prompt] = Recording.load(path).trajectories[0].prompt.tolist()
    assert f"{path.name}: recorded again, since the prompts changed" in capsys.readouterr().out
    assert recordings["a"] != recordings["an"]
    problems.write_text(json.dumps({"id": "p", "prompt": "the"}))
    assert execute([*arguments, "--parts", "real"]) == 2
    assert f"{path}: the prompts changed since it was recorded; run the part `record`" in capsys.readouterr().err


def test_what_a_recording_was_made_of_is_told(folder: Path) -> None:
    target = load_target(EngineConfig(target=str(folder / "toy"), threads=1))
    law, prompts = SamplingParams(temperature=0.7, max_new_tokens=3), random_prompts(2, target.vocab_size)
    wanted = requests(prompts, law, 2, seed=0)
    recording = record(target, EngineConfig(target="toy", drafter="none"), wanted)
    assert difference(recording, target, wanted) == ""
    assert difference(replace(recording, weights_id="other"), target, wanted) == "the target"
    assert difference(recording, target, requests(prompts, replace(law, max_new_tokens=4), 2, 0)) == "the sampling law"
    assert difference(recording, target, requests(prompts[:1], law, 2, 0)) == "the problems"
    assert difference(recording, target, requests(prompts, law, 2, seed=1)) == "the seed"
    swapped = [replace(prompts[0], token_ids=prompts[1].token_ids), prompts[1]]
    assert difference(recording, target, requests(swapped, law, 2, 0)) == "the prompts"


def test_a_partial_rerun_replaces_its_own_rows_only(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "out", tmp_path / "out")
    before = results(tmp_path)
    assert execute(command(folder, "--parts", "replay", out=tmp_path / "out", methods=["prompt_lookup"])) == 0
    after = results(tmp_path)
    for row, old in zip(after["replay"].pop("rows"), before["replay"].pop("rows"), strict=True):
        if row["method"] == "prompt_lookup":
            assert row["made"] != old["made"]
            assert row["tau"] == old["tau"]
        else:
            assert row == old
    assert len(after["replay"].pop("made")) == 2
    assert len(before["replay"].pop("made")) == 1
    assert after == before


def test_tables_and_plots_are_drawn_again_without_measuring(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    forbid_targets(monkeypatch)
    text = (folder / "out/tables.md").read_text()
    (folder / "out/tables.md").unlink()
    (folder / "out/speed.png").unlink()
    assert execute(["bench", "redraw", str(folder / "out")]) == 0
    assert (folder / "out/tables.md").read_text() == text
    assert (folder / "out/speed.png").is_file()
    assert execute(["bench", "redraw", str(folder)]) == 2
    assert f"{folder}: no results there; give the --out of a benchmark" in capsys.readouterr().err


def test_a_cut_recording_is_what_a_smaller_limit_would_have_recorded(folder: Path) -> None:
    (path,) = (folder / "out/recordings").glob("alternating-*.npz")
    recording = Recording.load(path)
    assert recording.problem_ids == ["p0", "p1", "p2"]
    chosen = recording.of_problems(["p2", "p0"])
    short = first_tokens(chosen, 5)
    assert short.problem_ids == ["p2", "p0"]
    assert short.law.max_new_tokens == 5
    for cut, whole in zip(short.trajectories, chosen.trajectories, strict=True):
        np.testing.assert_array_equal(cut.tokens, whole.tokens[:5])
        assert len(cut.law_probs) == len(cut.law_ids) == len(cut.tokens)


def test_recordings_of_different_workloads_are_different_files(folder: Path) -> None:
    results, plan = ResultFolder(folder / "out"), BenchPlan(out=folder / "out")
    workloads = ["sums", "sums.jsonl", "a/sums.jsonl", "b/sums.jsonl", str(folder / "sums.jsonl")]
    paths = [results.recording(plan, workload, 0.7) for workload in workloads]
    assert len(set(paths)) == len(paths)
    assert {path.parent for path in paths} == {results.recordings}


def test_alternation_has_both_orders_of_the_same_tokens(folder: Path) -> None:
    rows = results(folder)["alternation"]["rows"]
    assert [row["order"] for row in rows[:2]] == ["one_by_one", "alternating"]
    for row in rows:
        assert len(row["by_index"]) == 2
        assert [tau is None for tau in row["by_index"][0]] == [False, False, True, False, True]  # three problems
    for one_by_one, alternating in zip(rows[::2], rows[1::2], strict=True):
        if one_by_one["scope"] == "problem":  # and room for all tables: nobody hears of other problems
            assert one_by_one["by_index"] == alternating["by_index"]
            assert one_by_one["tau"] == alternating["tau"]


def test_a_decoder_learns_costs_in_its_own_curve(folder: Path) -> None:
    target = load_target(EngineConfig(target=str(folder / "toy"), threads=1))
    costs = CostModel([1.0, 2.0], [1, 64])
    decoder = new_decoder(target, None, EngineConfig(target="toy"), 1, costs)
    prompt = random_prompts(1, target.vocab_size)[0]
    decode(decoder, [request(prompt, 0, SamplingParams(max_new_tokens=3), 0, "a")], 1)
    assert decoder.cost_model is not None
    assert decoder.cost_model.table() != costs.table()
    assert costs.table() == [(1, 1.0), (64, 2.0)]


def test_scopes_are_those_of_the_statistics() -> None:
    names = {
        scope: scope_name(DraftingConfig(statistics_scope=scope), "p", 3, is_greedy=False)  # type: ignore[arg-type]
        for scope in ("request", "problem", "task", "run")
    }
    assert names == {"request": "p/3", "problem": "p", "task": "all", "run": "all"}
    assert scope_name(DraftingConfig(), "p", 3, is_greedy=True) == "all"


def test_tables_of_some_parts_are_written_without_the_others(folder: Path) -> None:
    found = results(folder)
    text = tables({"overlap": found["overlap"]})
    assert "n-gram overlap" in text
    assert "Speed" not in text


def test_milliseconds_of_a_pass_are_those_of_its_parts(folder: Path) -> None:
    found = results(folder)
    lines = tables({"timing": found["timing"]}).splitlines()
    assert "| cell | draft | forward | verify | commit | learn |" in lines
    for row in found["timing"]["rows"]:
        times = row["milliseconds_a_pass"]
        assert min(times[part] for part in ("forward", "verify", "commit")) > 0
        cells = ["draft", "forward", "verify", "commit", "learn"]
        assert f"| {row['label']} | {' | '.join(f'{times[part]:.2f}' for part in cells)} |" in lines


def test_dry_run_prints_times_and_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "drafting", "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "timing" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_replay_without_recordings_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["bench", "drafting", "--out", str(tmp_path), "--quick", "--parts", "replay"]) == 2
    assert "run the part `record` first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--methods", "stnd"], "methods: no method 'stnd'"),
        (["--workloads", "nowhere", "--parts", "record"], "no file nowhere"),
        (["--timed-workloads", "broken", "--parts", "timing"], "broken.jsonl:1: "),
        (["--seed", "7", "--parts", "real"], "s7.npz: nothing was recorded there; run the part `record` first"),
    ],
)
def test_what_is_missing_is_one_line_before_the_target_is_loaded(
    folder: Path,
    more: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "broken.jsonl").write_text("{")
    forbid_targets(monkeypatch)
    assert execute(command(folder, *more)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_missing_matplotlib_is_one_line_before_the_target_is_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    forbid_targets(monkeypatch)
    assert execute(command(folder)) == 2
    assert "plots need matplotlib; install it with" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperatures": (0.0,)}, "one of them must be above 0"),
        ({"workloads": ("a",), "real_workloads": ("b",)}, "b is not among the workloads"),
        ({"nodes": ()}, "nodes"),
        ({"real_problems": 6}, "at most as many as are recorded"),
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
        assert config.node_budget == method.name.startswith("stand_budget")
    assert len({method.name for method in METHODS}) == len(METHODS) == 15


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
