"""The journal and the run folder: kills, identity, growth, locks."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.config import DVTS, DraftingConfig, MajorityVote, RunConfig, load_config
from tts_orch.errors import ConfigError, RunFolderError
from tts_orch.journal import Journal, count_finished
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.results import ProblemResult
from tts_orch.rewards.base import StepScores
from tts_orch.run_folder import RunFolder

TARGET = {"weights": "w0", "numerics": "bitwise", "dtype": "float32"}
PROBLEMS = [Problem(id=f"p{i}", prompt=f"{i} + {i}?", answer=str(2 * i)) for i in range(4)]


def candidate(index: int = 0, problem_id: str = "p0", **changes: Any) -> Candidate:
    plain = Candidate(
        problem_id, (index,), 2**63 + index, (5, 7, index), "π = 3\n", FinishReason.EOS, "3", log_prob=-0.1
    )
    return dataclasses.replace(plain, **changes)


def config(folder: Path, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {
        "problems": "problems.jsonl",
        "engine": {"target": "m"},
        "method": {"name": "majority_vote", "n": 2},
        "out": str(folder),
    }
    return RunConfig(**{**values, **changes})


def begin(run: RunConfig, problems: list[Problem] = PROBLEMS, target: dict[str, str] = TARGET) -> None:
    with RunFolder(run, problems) as folder:
        folder.begin(target, ["f0"])


def search_result(problem: Problem, n: int, reason: FinishReason = FinishReason.EOS) -> ProblemResult:
    found = [candidate(i, problem.id, answer=problem.answer, finish_reason=reason) for i in range(n)]
    return ProblemResult.of(
        problem, SearchResult(problem.id, "majority_vote", problem.answer, found), MajorityVote(n=n)
    )


# ---- the journal


def test_a_recorded_candidate_comes_back_equal(tmp_path: Path) -> None:
    written = candidate(step_scores=(0.25, 1.0), path=(1, 0, 2), verify_steps=2, worker="host:1", fingerprint="f")
    journal = Journal(tmp_path)
    journal.record(written)
    assert journal.finished("p0", (1, 0, 2), written.seed) == written
    journal.close()
    assert Journal(tmp_path).finished("p0", (1, 0, 2), written.seed) == written


def test_a_line_holds_every_field_and_the_derived_ones(tmp_path: Path) -> None:
    Journal(tmp_path).record(candidate(verify_steps=2))
    line = json.loads((tmp_path / "candidates.jsonl").read_text())
    assert set(line) == {field.name for field in dataclasses.fields(Candidate)} | {"n_tokens", "tau"}
    assert (line["n_tokens"], line["tau"], line["finish_reason"]) == (3, 1.5, "eos")


def test_another_seed_or_path_is_another_candidate(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(candidate())
    assert journal.finished("p0", (0,), 1) is None
    assert journal.finished("p0", (1,), candidate().seed) is None
    assert journal.finished("p1", (0,), candidate().seed) is None


def test_failed_and_cancelled_candidates_are_done_again(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.record(candidate(finish_reason=FinishReason.ERROR, message="lost"))
    journal.record(candidate(finish_reason=FinishReason.CANCELLED))
    assert journal.finished("p0", (0,), candidate().seed) is None
    journal.record(candidate())
    journal.record(candidate())
    lines = [json.loads(line) for line in (tmp_path / "candidates.jsonl").read_text().splitlines()]
    assert [line["finish_reason"] for line in lines] == ["error", "eos"]


def test_finished_candidates_are_counted_by_problem_without_touching_the_folder(tmp_path: Path) -> None:
    assert count_finished(tmp_path) == {}
    journal = Journal(tmp_path)
    for found in (candidate(0), candidate(1), candidate(2, finish_reason=FinishReason.ERROR), candidate(0, "p1")):
        journal.record(found)
    journal.close()
    with (tmp_path / "candidates.jsonl").open("a") as file:
        file.write('{"problem_id": "p')  # a writer was killed, or is at work
    before = (tmp_path / "candidates.jsonl").read_bytes()
    assert count_finished(tmp_path) == {"p0": 2, "p1": 1}
    assert (tmp_path / "candidates.jsonl").read_bytes() == before


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(min_value=0))
def test_a_kill_in_the_middle_of_a_line_costs_that_line_only(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    journal = Journal(folder)
    for index in range(3):
        journal.record(candidate(index))
    journal.close()
    content = (folder / "candidates.jsonl").read_bytes()
    cut %= len(content)
    (folder / "candidates.jsonl").write_bytes(content[:cut])
    complete = content[:cut].count(b"\n")

    resumed = Journal(folder)
    found = [resumed.finished("p0", (index,), candidate(index).seed) for index in range(3)]
    assert found == [candidate(index) if index < complete else None for index in range(3)]
    for index in range(3):
        resumed.record(candidate(index))
    resumed.close()
    assert (folder / "candidates.jsonl").read_bytes() == content


def test_an_unfinished_line_is_dropped_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "candidates.jsonl").write_text('{"problem_id": "p0", "pa')
    Journal(tmp_path)
    assert "unfinished last line" in caplog.text
    assert (tmp_path / "candidates.jsonl").read_bytes() == b""


@pytest.mark.parametrize(
    "damage", ['{"problem_id": "p', "[]", '{"problem_id": "p0"}', "\x00\x00", '{"finish_reason": "bored"}']
)
def test_damage_elsewhere_names_file_and_line(tmp_path: Path, damage: str) -> None:
    journal = Journal(tmp_path)
    journal.record(candidate(0))
    journal.close()
    whole = (tmp_path / "candidates.jsonl").read_text()
    (tmp_path / "candidates.jsonl").write_text(whole + damage + "\n" + whole)
    with pytest.raises(RunFolderError, match=r"candidates\.jsonl:2: "):
        Journal(tmp_path)


def test_a_search_step_is_written_once(tmp_path: Path) -> None:
    dropped = candidate(2, parent=(7,), n_before=1, step_scores=(0.5, 0.25), finish_reason=FinishReason.STEP)
    for _ in range(2):
        journal = Journal(tmp_path)
        journal.keep([candidate(0), candidate(1)], [dropped])
        journal.keep([candidate(1)])
        journal.keep([])
        journal.close()
    first, second = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert (first["problem_id"], [kept["path"] for kept in first["kept"]]) == ("p0", [[0], [1]])
    assert first["dropped"] == [
        {"path": [2], "parent": [7], "step_scores": [0.5, 0.25], "n_new": 2, "finish_reason": "step"}
    ]
    assert ([kept["path"] for kept in second["kept"]], second["dropped"]) == ([[1]], [])


def test_scores_come_back_for_the_same_tokens_only(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    scores = StepScores((0.25, 1 / 3), n_tokens=7, n_tokens_whole=9)
    journal.record_scores(candidate(0), scores)
    journal.record_scores(candidate(1), StepScores(failure="too long"))
    for opened in (journal, Journal(tmp_path)):
        assert opened.scores(candidate(0)) == scores
        assert opened.scores(candidate(0, token_ids=(5, 7))) is None
        assert opened.scores(candidate(0, "p1")) is None
        assert opened.scores(candidate(1)) is None, "what could not be scored is tried again"


def test_a_candidate_that_came_out_otherwise_replaces_the_one_before(tmp_path: Path) -> None:
    """What a step follows may be other tokens than in an earlier run; the candidate of its path is then another."""
    journal = Journal(tmp_path)
    for again in (candidate(), candidate(), candidate(token_ids=(5, 8)), candidate(token_ids=(5, 8))):
        journal.record(again)
    assert len((tmp_path / "candidates.jsonl").read_text().splitlines()) == 2
    assert journal.n_finished["p0"] == 1
    for opened in (journal, Journal(tmp_path)):
        assert opened.finished("p0", (0,), candidate().seed) == candidate(token_ids=(5, 8))


def test_steps_are_no_candidates_of_a_run(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    for index, reason in enumerate((FinishReason.STEP, FinishReason.STEP_LENGTH, FinishReason.EOS)):
        journal.record(candidate(index, finish_reason=reason))
    assert count_finished(tmp_path) == {"p0": 1}


def test_lines_without_what_is_new_are_read(tmp_path: Path) -> None:
    Journal(tmp_path).record(candidate())
    line = json.loads((tmp_path / "candidates.jsonl").read_text())
    for name in ("parent", "n_before", "lowest_confidence"):
        del line[name]
    (tmp_path / "candidates.jsonl").write_text(json.dumps(line) + "\n")
    assert Journal(tmp_path).finished("p0", (0,), candidate().seed) == candidate()


# ---- identity


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 1}, "seed is 0 .* and 1 now"),
        ({"law": {"temperature": 0.2}}, r"law\.temperature is 0\.7 .* and 0\.2 now"),
        ({"law": {"stop": ["\n\n"]}}, r"law\.stop"),
        ({"template": "raw"}, "template is 'auto' .* and 'raw' now"),
        ({"instructions": "always"}, "instructions is 'auto' .* and 'always' now"),
        (
            {"engine": {"target": "m", "verification": "rejection"}},
            r"engine\.verification is 'keyed' .* 'rejection' now",
        ),
        ({"method": {"name": "best_of_n", "n": 2}}, r"method\.name is 'majority_vote' .* and 'best_of_n' now"),
    ],
)
def test_another_identity_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    begin(config(tmp_path))
    with pytest.raises(RunFolderError, match=named):
        RunFolder(config(tmp_path, **changes), PROBLEMS)


def test_parameters_of_the_method_belong_to_the_identity(tmp_path: Path) -> None:
    begin(config(tmp_path, method={"name": "best_of_n", "choice": "maximum"}))
    with pytest.raises(RunFolderError, match=r"method\.choice is 'maximum' .* and 'borda' now"):
        RunFolder(config(tmp_path, method={"name": "best_of_n", "choice": "borda"}), PROBLEMS)


@pytest.mark.parametrize(("name", "value"), [("weights", "w1"), ("numerics", "fast"), ("dtype", "float64")])
def test_another_target_is_refused_by_name(tmp_path: Path, name: str, value: str) -> None:
    begin(config(tmp_path))
    with pytest.raises(RunFolderError, match=f"{name} is '{TARGET[name]}' .* and '{value}' now"):
        begin(config(tmp_path), target={**TARGET, name: value})


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"target": "elsewhere/m", "drafter": "none", "max_batch": 2, "threads": 1}},
        {"workers": 3},
        {"engine": {"target": "m", "dtype": "float32"}},  # what it is counts, not how it was asked for
        {"method": {"name": "majority_vote", "n": 8}},
        {"method": {"name": "majority_vote", "n": 1}},
        {"problems": "copy.jsonl", "compare_plain": 2, "store": "redis://host"},
    ],
)
def test_everything_else_may_change(tmp_path: Path, changes: dict[str, Any]) -> None:
    begin(config(tmp_path))
    begin(config(tmp_path / ".." / tmp_path.name, **changes))


@pytest.mark.parametrize("verification", ["keyed", "rejection"])
def test_drafting_may_change_under_either_verification(tmp_path: Path, verification: str) -> None:
    other: dict[str, Any] = {
        "drafter": "prompt_lookup",
        "drafters": {"math": tmp_path, "chat": tmp_path},
        "routing": "first_steps",
        "routing_steps": 2,
        "routing_probe_every": 8,
        "draft_depth": 3,
        "draft_width": 4,
        "drafter_placement": "pooled",
        "draft_overlap": True,
        "max_nodes": 3,
        "node_budget": False,
        "draft_sampling": "deterministic",
        "statistics_scope": "run",
        "update_from_prefill": "nothing",
        "update_from_accepted": False,
        "update_from_rejected": True,
        "stored_law": "processed",
        "unigram": False,
        "table_entries": 1024,
    }
    assert other.keys() == DraftingConfig.model_fields.keys() - {"verification", "draft_tree"}
    fixed = {"target": "m", "verification": verification}
    begin(config(tmp_path, engine=fixed))
    begin(config(tmp_path, engine={**fixed, **other}))


def test_runs_in_a_folder_are_numbered_before_anything_is_decoded(tmp_path: Path) -> None:
    for number in range(3):
        with RunFolder(config(tmp_path), PROBLEMS) as folder:
            folder.begin(TARGET, ["f0"])
            assert folder.n_earlier_runs == number
            assert json.loads((tmp_path / "manifest.json").read_text())["n_runs"] == number + 1
        with RunFolder(config(tmp_path), PROBLEMS):
            pass  # stopped before it began: nothing was decoded


def test_folders_from_before_runs_were_numbered_had_one(tmp_path: Path) -> None:
    begin(config(tmp_path))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    del manifest["n_runs"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        folder.begin(TARGET, ["f0"])
        assert folder.n_earlier_runs == 1


@pytest.mark.parametrize(("verification", "is_warned"), [("keyed", True), ("rejection", False)])
def test_other_numerics_are_remarked_where_tokens_are_promised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, verification: str, is_warned: bool
) -> None:
    run = config(tmp_path, engine={"target": "m", "verification": verification})
    for fingerprint in ("f0", "f1"):
        with RunFolder(run, PROBLEMS) as folder:
            folder.begin(TARGET, [fingerprint])
    assert ("equal seeds may give other tokens" in caplog.text) == is_warned


def test_problems_may_be_added_and_left_out_at_the_end(tmp_path: Path) -> None:
    for count in (2, 4, 1, 4):
        begin(config(tmp_path), PROBLEMS[:count])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert [problem["id"] for problem in manifest["problems"]] == ["p0", "p1", "p2", "p3"]


@pytest.mark.parametrize(
    ("problems", "named"),
    [
        (PROBLEMS[1:], "problem 1 is 'p0' in this folder and 'p1' now"),
        ([PROBLEMS[0], dataclasses.replace(PROBLEMS[1], prompt="?")], "problem 2 is 'p1' .* and 'p1' now, edited"),
        ([PROBLEMS[0], dataclasses.replace(PROBLEMS[1], answer="?")], "edited"),
    ],
)
def test_other_problems_are_refused(tmp_path: Path, problems: list[Problem], named: str) -> None:
    begin(config(tmp_path))
    with pytest.raises(RunFolderError, match=named):
        RunFolder(config(tmp_path), problems)


def test_the_manifest_says_what_made_the_tokens(tmp_path: Path) -> None:
    begin(config(tmp_path))
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        folder.begin(TARGET, ["f1"])
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["fingerprints"] == ["f0", "f1"]
    assert manifest["target"] == TARGET
    assert set(manifest["versions"]) >= {"python", "torch", "transformers", "numba", "ray", "tts-orch"}


def test_the_written_settings_make_the_same_run(tmp_path: Path) -> None:
    given_config = config(tmp_path, law={"stop": ["a"]}, limit=3)
    begin(given_config)
    absolute = given_config.model_copy(update={"problems": Path("problems.jsonl").absolute()})
    assert RunConfig(**load_config(tmp_path / "config.yaml")) == absolute


# ---- results


def test_finished_problems_are_not_searched_again_until_n_grows(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        folder.begin(TARGET, ["f0"])
        for problem in (PROBLEMS[2], PROBLEMS[0]):
            for index in range(2):
                folder.journal.record(candidate(index, problem.id))
            folder.add(search_result(problem, n=2))
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        assert [problem.id for problem in folder.pending] == ["p1", "p3"]
    with RunFolder(config(tmp_path, method={"name": "majority_vote", "n": 4}), PROBLEMS) as folder:
        assert folder.pending == PROBLEMS
        assert folder.results == []


def test_a_problem_with_failed_candidates_is_pending(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        folder.begin(TARGET, ["f0"])
        folder.add(search_result(PROBLEMS[0], n=2, reason=FinishReason.ERROR))
        assert folder.pending == PROBLEMS


@pytest.mark.parametrize(
    ("stopped_by", "is_pending"),
    [("deadline of the run", True), ("token budget of the run", True), ("deadline", False), ("esc", False)],
)
def test_a_problem_that_the_budget_of_the_run_stopped_goes_on_in_the_next_one(
    tmp_path: Path, stopped_by: str, is_pending: bool
) -> None:
    with RunFolder(config(tmp_path), PROBLEMS[:1]) as folder:
        folder.begin(TARGET, ["f0"])
        for index in range(2):
            folder.journal.record(candidate(index))
        folder.add(dataclasses.replace(search_result(PROBLEMS[0], n=2), stopped_by=stopped_by))
        assert bool(folder.pending) == is_pending


def test_a_problem_whose_candidates_left_the_journal_is_pending(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path), PROBLEMS[:1]) as folder:
        folder.begin(TARGET, ["f0"])
        for index in range(2):
            folder.journal.record(candidate(index))
        folder.add(search_result(PROBLEMS[0], n=2))
        assert folder.pending == []
    first, _ = (tmp_path / "candidates.jsonl").read_text().splitlines()
    (tmp_path / "candidates.jsonl").write_text(first + "\n")
    with RunFolder(config(tmp_path), PROBLEMS[:1]) as folder:
        assert folder.pending == PROBLEMS[:1]


def test_results_end_up_in_problem_order_without_older_ones(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path), PROBLEMS) as folder:
        folder.begin(TARGET, ["f0"])
        for problem in PROBLEMS:
            folder.add(search_result(problem, n=2))
    with RunFolder(config(tmp_path, method={"name": "majority_vote", "n": 3}), PROBLEMS[:3]) as folder:
        folder.begin(TARGET, ["f0"])
        for problem in reversed(PROBLEMS[:3]):
            folder.add(search_result(problem, n=3))
        folder.write_results()
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["problem_id"], line["n"], line["correct"]) for line in lines] == [
        (f"p{i}", 3, True) for i in range(3)
    ]


# ---- the folder


def test_a_folder_is_used_by_one_run_at_a_time(tmp_path: Path) -> None:
    hold = (
        "import sys, time; from pathlib import Path; from tts_orch.folder_lock import FolderLock; "
        "lock = FolderLock(Path(sys.argv[1])); print('locked', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        with pytest.raises(RunFolderError, match=f"in use by process {holder.pid}; "):
            RunFolder(config(tmp_path), PROBLEMS)
        holder.kill()
    begin(config(tmp_path))


def test_an_other_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunFolderError, match=r"holds 'thesis\.tex' but no manifest\.json"):
        RunFolder(config(tmp_path), PROBLEMS)
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFolderError, match=r"file/run: Not a directory; give a folder that can be written"):
        RunFolder(config(tmp_path / "file" / "run"), PROBLEMS)


def test_a_run_that_never_began_leaves_nothing(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path / "run"), PROBLEMS):
        assert (tmp_path / "run").exists()
    assert not (tmp_path / "run").exists()


def test_a_damaged_manifest_is_one_line(tmp_path: Path) -> None:
    begin(config(tmp_path))
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(RunFolderError, match=r"manifest\.json: damaged"):
        RunFolder(config(tmp_path), PROBLEMS)


# ---- searches step by step

STEPWISE = {"method": {"name": "dvts", "n": 8, "beam_width": 4}, "reward": {"kind": "callable", "model": "m:f"}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"method": {"name": "dvts", "n": 8, "beam_width": 2}}, r"method\.beam_width is 4 .* and 2 now"),
        ({"method": {"name": "dvts", "n": 8, "delimiters": ["."]}}, r"method\.delimiters"),
        ({"reward": {"kind": "judge"}}, r"reward\.kind is 'callable' .* and 'judge' now"),
        ({"reward": {"kind": "callable", "model": "m:f", "delimiters": ["."]}}, r"reward\.delimiters"),
    ],
)
def test_steps_and_rewards_belong_to_the_identity(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    begin(config(tmp_path, **STEPWISE))
    with pytest.raises(RunFolderError, match=named):
        RunFolder(config(tmp_path, **{**STEPWISE, **changes}), PROBLEMS)


def test_another_reward_model_is_refused(tmp_path: Path) -> None:
    begin(config(tmp_path, **STEPWISE), target={**TARGET, "reward": "r0"})
    with pytest.raises(RunFolderError, match="reward is 'r0' in this folder and 'r1' now"):
        begin(config(tmp_path, **STEPWISE), target={**TARGET, "reward": "r1"})


def test_subtrees_may_be_added_and_the_place_of_the_reward_model_may_change(tmp_path: Path) -> None:
    begin(config(tmp_path, **STEPWISE))
    reward = {"kind": "callable", "model": "moved:f", "batch": 2, "threads": 1, "timeout_s": 9}
    begin(config(tmp_path, method={"name": "dvts", "n": 16}, reward=reward, budget={"problem_seconds": 1}))


@pytest.mark.parametrize("name", ["beam_search", "particle_filtering", "rebase"])
def test_other_searches_do_not_grow(tmp_path: Path, name: str) -> None:
    begin(config(tmp_path, **{**STEPWISE, "method": {"name": name, "n": 8}}))
    with pytest.raises(RunFolderError, match=r"method\.n is 8 in this folder and 16 now; .* another --out"):
        RunFolder(config(tmp_path, **{**STEPWISE, "method": {"name": name, "n": 16}}), PROBLEMS)


def test_steps_need_a_reward_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="reward: dvts needs a reward model"):
        config(tmp_path, method={"name": "dvts"})


def test_a_problem_with_steps_and_no_result_is_half_done(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path, **STEPWISE), PROBLEMS[:2]) as folder:
        folder.begin(TARGET, ["f0"])
        folder.journal.record(candidate(0, finish_reason=FinishReason.STEP))
        assert folder.half_done == PROBLEMS[:1]


def test_a_result_with_an_answer_found_at_a_step_is_done(tmp_path: Path) -> None:
    with RunFolder(config(tmp_path, **STEPWISE), PROBLEMS[:1]) as folder:
        folder.begin(TARGET, ["f0"])
        folder.journal.record(candidate(0, finish_reason=FinishReason.STEP))
        folder.add(dataclasses.replace(search_result(PROBLEMS[0], n=1, reason=FinishReason.ANSWER_FOUND), n=8))
        assert folder.pending == []


def test_what_is_no_solution_has_no_answer_in_a_result() -> None:
    reasons = (FinishReason.STEP, FinishReason.ANSWER_FOUND, FinishReason.LOW_CONFIDENCE)
    found = [candidate(i, answer="0", finish_reason=reason) for i, reason in enumerate(reasons)]
    result = ProblemResult.of(PROBLEMS[0], SearchResult("p0", "dvts", "0", found), DVTS(n=4))
    assert result.candidate_classes == (None, 0, None)
    assert result.candidate_correct == (False, True, False)
