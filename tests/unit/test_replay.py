"""Replay on hand-made recordings: who is told what and when, what the figures mean, and the files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.exactness.drafters import CheckingDrafter, OracleDrafter, RandomDrafter, TreeBuilder
from tts_orch.cli import execute
from tts_orch.config import RunConfig
from tts_orch.errors import ProblemError, RunFolderError
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import DraftTree, SlotSource, TrajectoryId, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.tree_file import DEFAULT_TREE
from tts_orch.records import Candidate, FinishReason, IntArray, SamplingParams
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recorder import NoDrafts, RecordingDrafter
from tts_orch.replay.recording import Laws, RecordedTrajectory, Recording, problem_and_index
from tts_orch.replay.recovery import FinishedRun, recover
from tts_orch.replay.replayer import replay
from tts_orch.run_folder import RunFolder
from tts_orch.seeds import trajectory_seed
from tts_orch.tasks.problems import read_problems

K, VOCABULARY = 3, 50
LAW = SamplingParams(temperature=0.7, max_new_tokens=10, stop_ids=(2, 3), logit_bias=((4, 1.5),))
SCALARS = {
    "vocabulary_size": VOCABULARY,
    "max_context": 100,
    "weights_id": "w",
    "numerics": "bitwise",
    "fingerprint": "f",
}


def laws(n: int, seed: int) -> Laws:
    """Return `n` random laws."""
    random = np.random.default_rng(seed)
    ids = np.array([random.permutation(VOCABULARY)[:K] for _ in range(n)], np.int32).reshape(n, K)
    return ids, np.sort(random.dirichlet(np.ones(K + 1), n).astype(np.float32)[:, :K], axis=1)[:, ::-1]


def recording(lengths: dict[str, list[int]], prompt_length: int = 4) -> Recording:
    """Return trajectories of these output lengths by problem, of random tokens."""
    random = np.random.default_rng(0)
    trajectories, prompt_laws = [], {}
    for p, (problem, of_problem) in enumerate(lengths.items()):
        prompt = random.integers(5, VOCABULARY, prompt_length).astype(np.int32)
        prompt_laws[problem] = laws(prompt_length - 1, p)
        for i, n in enumerate(of_problem):
            tokens = random.integers(5, VOCABULARY, n).astype(np.int32)
            trajectories.append(
                RecordedTrajectory(f"{problem}/{i}", problem, i, 100 * p + i, prompt, tokens, *laws(n, 10 * p + i))
            )
    return Recording(LAW, **SCALARS, prompt_laws=prompt_laws, trajectories=trajectories)  # type: ignore[arg-type]


def continuations(recorded: Recording) -> dict[TrajectoryId, list[int]]:
    return {one.name: [*one.prompt.tolist(), *one.tokens.tolist()] for one in recorded.trajectories}


def committed(passes: Sequence[Sequence[VerifiedStep]]) -> dict[TrajectoryId, list[int]]:
    tokens: dict[TrajectoryId, list[int]] = {}
    for steps in passes:
        for step in steps:
            tokens.setdefault(step.trajectory, []).extend(step.committed.tolist())
    return tokens


def names(passes: Sequence[Sequence[VerifiedStep]]) -> list[list[TrajectoryId]]:
    return [[step.trajectory for step in steps] for steps in passes]


class TestReplayer:
    def test_without_drafts_every_step_commits_one_token_from_its_law(self) -> None:
        recorded = recording({"a": [3], "b": [2]})
        passes = list(replay(recorded, NoDrafts(), FixedSize(5)))
        assert names(passes) == [["a/0"]] * 3 + [["b/0"]] * 2
        first = recorded.trajectories[0]
        for position, (step,) in enumerate(passes[:3]):
            assert step.committed.tolist() == [first.tokens[position]]
            assert np.array_equal(step.law_ids, first.law_ids[position : position + 1])
            assert np.array_equal(step.law_probs, first.law_probs[position : position + 1])

    def test_the_walk_takes_what_is_right_and_a_bonus_token(self) -> None:
        recorded = recording({"a": [9]})
        drafter = OracleDrafter(continuations(recorded), block=3)
        steps = [step for (step,) in replay(recorded, drafter, FixedSize(5))]
        assert [len(step.accepted) for step in steps] == [3, 3, 1]
        assert [len(step.committed) for step in steps] == [4, 4, 1]  # the end needs no draft, but a draft was right

    def test_a_drafted_end_leaves_no_bonus_token(self) -> None:
        recorded = recording({"a": [4]})
        (step,) = [step for (step,) in replay(recorded, OracleDrafter(continuations(recorded)), FixedSize(9))]
        assert len(step.accepted) == len(step.committed) == 4
        assert step.law_probs.any(axis=1).tolist() == [True] * 4 + [False] * (step.tree.n_nodes - 4)

    @given(
        st.lists(st.lists(st.integers(1, 10), min_size=1, max_size=6), min_size=1, max_size=3),
        st.integers(1, 4),
        st.data(),
    )
    def test_any_drafter_gets_every_token_once(
        self, lengths: list[list[int]], lockstep: int, data: st.DataObject
    ) -> None:
        """The drafter itself checks that it is told nothing else."""
        recorded = recording({str(p): of_problem for p, of_problem in enumerate(lengths)})
        drafter = RandomDrafter(VOCABULARY, [7, 8], seed=data.draw(st.integers(0, 99)))
        order = data.draw(st.sampled_from(["one_by_one", "alternating"]))
        passes = list(replay(recorded, drafter, FixedSize(12), lockstep=lockstep, order=order))  # type: ignore[arg-type]
        assert committed(passes) == {one.name: one.tokens.tolist() for one in recorded.trajectories}
        assert all(told.is_closed for told in drafter.told.values())
        assert all(len(steps) <= lockstep for steps in passes)
        assert all(len({problem_and_index(name)[0] for name in of_pass}) == 1 for of_pass in names(passes))

    def test_the_next_trajectory_takes_the_place_of_one_that_ended(self) -> None:
        passes = list(replay(recording({"a": [1, 3, 2], "b": [1]}), NoDrafts(), FixedSize(1), lockstep=2))
        assert names(passes) == [["a/0", "a/1"], ["a/1", "a/2"], ["a/1", "a/2"], ["b/0"]]

    def test_problems_take_turns_by_lockstep_trajectories(self) -> None:
        recorded = recording({"a": [1, 1, 1], "b": [1, 2]})
        drafter = CheckingDrafter()
        passes = list(replay(recorded, drafter, FixedSize(1), lockstep=2, order="alternating"))
        assert names(passes) == [["a/0", "a/1"], ["b/0", "b/1"], ["b/1"], ["a/2"]]
        assert drafter.closed_scopes == ["b", "a"]

    def test_a_prompt_is_told_once_a_scope_and_a_scope_closed_after_its_last_trajectory(self) -> None:
        recorded = recording({"a": [1, 2], "b": [1]}, prompt_length=4)
        by_problem, alone, together = CheckingDrafter(), CheckingDrafter(), CheckingDrafter()
        list(replay(recorded, by_problem, FixedSize(1)))
        list(replay(recorded, alone, FixedSize(1), scope_of=lambda one: one.name))
        list(replay(recorded, together, FixedSize(1), scope_of=lambda one: "all"))
        assert {name: told.prompt_rows for name, told in by_problem.told.items()} == {
            "a/0": [0, 1, 2],
            "a/1": [],
            "b/0": [0, 1, 2],
        }
        assert by_problem.closed_scopes == ["a", "b"]
        assert all(told.prompt_rows == [0, 1, 2] for told in alone.told.values())
        assert alone.closed_scopes == ["a/0", "a/1", "b/0"]
        assert together.closed_scopes == ["all"]

    def test_leading_laws_that_nobody_computed_are_not_told(self) -> None:
        recorded = recording({"a": [1]})
        recorded.prompt_laws["a"][1][:2] = 0
        drafter = CheckingDrafter()
        list(replay(recorded, drafter, FixedSize(1)))
        assert drafter.told["a/0"].prompt_rows == [2]

    def test_the_drafter_learns_what_a_decoder_would_tell_it_of_the_trajectory(self) -> None:
        recorded = recording({"a": [2]})
        drafter = CheckingDrafter()
        list(replay(recorded, drafter, FixedSize(1)))
        start = drafter.told["a/0"].start
        assert (start.seed, start.law, start.scope, start.is_keyed) == (0, LAW, "a", True)
        assert start.token_ids.tolist() == recorded.trajectories[0].prompt.tolist()

    @pytest.mark.parametrize(("max_context", "first_room"), [(100, 9), (12, 7)])
    def test_rooms_end_where_the_law_or_the_context_does(self, max_context: int, first_room: int) -> None:
        seen: list[list[int]] = []

        class Spy(FixedSize):
            def draft(
                self, source: SlotSource, rooms: NDArray[np.int64], other_rows: int, n_roots: int
            ) -> list[DraftTree]:
                seen.append(rooms.tolist())
                assert (other_rows, n_roots) == (0, len(rooms))
                return super().draft(source, rooms, other_rows, n_roots)

        recorded = replace(recording({"a": [2, 1]}, prompt_length=4), max_context=max_context)
        list(replay(recorded, NoDrafts(), Spy(1), lockstep=2))
        assert seen == [[first_room, first_room], [first_room - 1]]


def branching_step(name: TrajectoryId, accepted: Sequence[int], n_committed: int) -> VerifiedStep:
    """Root with children 1 (source 4) and 2 (source 4), 3 below 1 (source 2) and 4 below 3 (source 4)."""
    builder = TreeBuilder(9)
    for parent, token in ((0, 11), (0, 12), (1, 13), (3, 14)):
        builder.add(parent, token)
    tree = replace(builder.build(), source=np.array([0, 4, 4, 2, 4], np.int32))
    nothing = np.zeros((5, K))
    return VerifiedStep(
        name,
        tree,
        np.array(accepted, np.int32),
        np.arange(n_committed, dtype=np.int32),
        nothing.astype(np.int32),
        nothing.astype(np.float32),
    )


def one_token_step(name: TrajectoryId) -> VerifiedStep:
    """Nothing drafted, one token committed."""
    nothing = np.zeros((1, K), np.int32), np.zeros((1, K), np.float32)
    return VerifiedStep(name, DraftTree.root_only(9), np.zeros(0, np.int32), np.zeros(1, np.int32), *nothing)


class TestAcceptance:
    @pytest.fixture
    def tally(self) -> Acceptance:
        tally = Acceptance()
        tally.add([branching_step("a/0", [1, 3], 3), branching_step("a/1", [2], 2)])
        tally.add([branching_step("a/0", [], 1), one_token_step("a/1")])
        tally.add([branching_step("a/0", [1], 1)])  # cut: no bonus token, and nothing was judged behind it
        return tally

    def test_tau_counts_bonus_tokens_and_no_prefill(self, tally: Acceptance) -> None:
        assert (tally.total.committed_tokens, tally.total.verify_steps) == (8, 5)
        assert tally.tau == 8 / 5
        assert {index: count.tau for index, count in tally.by_index.items()} == {0: 5 / 3, 1: 3 / 2}

    def test_depths_are_shares_of_all_verify_steps(self, tally: Acceptance) -> None:
        assert [tally.at_depth(depth) for depth in (0, 1, 2, 3)] == [1, 3 / 5, 1 / 5, 0]

    def test_what_was_not_accepted_is_waste(self, tally: Acceptance) -> None:
        assert (tally.draft_nodes, tally.accepted_nodes, tally.wasted_nodes) == (16, 4, 12)
        assert tally.draft_acceptance_rate == 4 / 16
        assert tally.nodes_a_step == 16 / 5

    def test_sources_are_judged_where_they_had_a_child(self, tally: Acceptance) -> None:
        order4, order2 = tally.by_source[4], tally.by_source[2]
        assert (order4.roots, order4.nodes, order4.tried, order4.accepted) == (4, 12, 5, 3)
        assert (order2.roots, order2.nodes, order2.tried, order2.accepted) == (0, 4, 1, 1)
        assert (tally.hit_rate(4), tally.hit_rate(2), tally.hit_rate(1)) == (4 / 5, 0, 0)
        assert order4.acceptance == 3 / 5

    def test_nothing_counted_is_no_division_by_zero(self) -> None:
        empty = Acceptance()
        assert (empty.tau, empty.draft_acceptance_rate, empty.nodes_a_step, empty.at_depth(1)) == (0, 0, 0, 0)
        assert json.loads(json.dumps(empty.to_json()))["tau"] == 0

    def test_report_has_plain_numbers(self, tally: Acceptance) -> None:
        report = json.loads(json.dumps(tally.to_json()))
        assert report["tau"] == 8 / 5
        assert report["acceptance_at_depth"] == {"1": 3 / 5, "2": 1 / 5}
        assert report["by_source"]["2"] == {"hit_rate": 0, "acceptance": 1, "nodes": 4}

    def test_measuring_changes_nothing_and_takes_the_time(self) -> None:
        recorded = recording({"a": [10, 8]})
        plain = list(replay(recorded, OracleDrafter(continuations(recorded), block=2), FixedSize(4)))
        measured = MeasuredDrafter(OracleDrafter(continuations(recorded), block=2))
        passes = list(replay(recorded, measured, FixedSize(4)))
        assert committed(passes) == committed(plain)
        assert measured.acceptance.total.verify_steps == len(plain)
        assert measured.drafting_us > 0
        assert measured.observing_us > 0

    def test_a_source_that_ranks_its_slots_still_does(self) -> None:
        class Ranked(CheckingDrafter):
            def slots(self, trajectories: Sequence[TrajectoryId]) -> SlotSource:
                grown = [DraftTree.root_only(1)]
                return SimpleNamespace(grow=lambda n: grown, grow_while_paying=lambda growth: grown)  # type: ignore[return-value]

        assert hasattr(MeasuredDrafter(Ranked()).slots(["a/0"]), "grow_while_paying")
        assert not hasattr(MeasuredDrafter(NoDrafts()).slots([]), "grow_while_paying")


class TestRecording:
    def test_file_brings_everything_back(self, tmp_path: Path) -> None:
        recorded = recording({"a": [3, 1], "b": [2]})
        recorded.save(tmp_path / "it.npz")
        loaded = Recording.load(tmp_path / "it.npz")
        assert loaded.law == recorded.law
        assert {name: getattr(loaded, name) for name in SCALARS} == SCALARS
        check_equal(loaded, recorded)

    def test_one_token_prompts_have_no_laws(self, tmp_path: Path) -> None:
        recorded = recording({"a": [3]}, prompt_length=1)
        recorded.save(tmp_path / "it.npz")
        assert Recording.load(tmp_path / "it.npz").prompt_laws["a"][0].shape == (0, K)

    def test_parts_join_to_the_whole(self) -> None:
        recorded = recording({"a": [3, 1], "b": [2], "c": [1]})
        parts = [recorded.of_problems(["a", "b"]), recorded.of_problems(["c"])]
        assert [part.problem_ids for part in parts] == [["a", "b"], ["c"]]
        check_equal(Recording.joined(parts), recorded)

    def test_a_recorded_replay_is_the_recording(self) -> None:
        recorded = recording({"a": [3, 9, 2], "b": [2]})
        recorder = RecordingDrafter(OracleDrafter(continuations(recorded), block=2))
        list(replay(recorded, recorder, FixedSize(4), lockstep=2, order="alternating"))
        check_equal(recorder.recording(LAW, **SCALARS), recorded)  # type: ignore[arg-type]

    def test_problems_stand_in_the_order_in_which_they_began(self) -> None:
        recorder = RecordingDrafter()
        for name in ("a/0", "b/0"):
            recorder.start(TrajectoryStart(name, np.array([5], np.int32), name, 1, LAW))
        for name in ("b/0", "a/0"):
            recorder.observe([one_token_step(name)])
            recorder.close(name)
        recorded = recorder.recording(LAW, **SCALARS)  # type: ignore[arg-type]
        assert recorded.problem_ids == ["a", "b"]

    def test_what_was_cancelled_before_its_first_token_is_left_out(self, tmp_path: Path) -> None:
        recorder = RecordingDrafter()
        for name in ("a/0", "a/1"):
            recorder.start(TrajectoryStart(name, np.array([5], np.int32), "a", 1, LAW))
        recorder.observe([one_token_step("a/1")])
        for name in ("a/0", "a/1"):
            recorder.close(name)
        recorded = recorder.recording(LAW, **SCALARS)  # type: ignore[arg-type]
        assert [one.name for one in recorded.trajectories] == ["a/1"]
        recorded.save(tmp_path / "it.npz")

    def test_unfinished_trajectories_are_left_out(self) -> None:
        recorded = recording({"a": [3, 9]})
        recorder = RecordingDrafter()
        passes = replay(recorded, recorder, FixedSize(1))
        for _ in range(5):
            next(passes)
        assert [one.name for one in recorder.recording(LAW, **SCALARS).trajectories] == ["a/0"]  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda path: path.unlink(), "No such file or directory; give a recording"),
            (lambda path: path.write_bytes(b"no zip"), "not a recording"),
            (lambda path: path.write_bytes(path.read_bytes()[:200]), "not a recording"),
            (lambda path: np.savez(path, tokens=np.zeros(3)), "not a recording"),
            (
                lambda path: np.savez(path, header=np.frombuffer(b'{"schema_version": 99}', np.uint8)),
                "format 99, not 1",
            ),
        ],
    )
    def test_bad_files_are_one_line(self, spoil: object, message: str, tmp_path: Path) -> None:
        path = tmp_path / "it.npz"
        recording({"a": [3]}).save(path)
        spoil(path)  # type: ignore[operator]
        with pytest.raises(RunFolderError, match=message) as caught:
            Recording.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert "\n" not in str(caught.value)

    def test_names_are_split_at_the_last_slash(self) -> None:
        assert problem_and_index("math/algebra/7/3") == ("math/algebra/7", 3)
        assert problem_and_index("a/2.0.5") == ("a", 5)


def check_equal(one: Recording, other: Recording) -> None:
    assert one.problem_ids == other.problem_ids
    for problem_id in other.problem_ids:
        for column, other_column in zip(one.prompt_laws[problem_id], other.prompt_laws[problem_id], strict=True):
            assert np.array_equal(column, other_column)
            assert column.dtype == other_column.dtype
    for mine, others in zip(one.trajectories, other.trajectories, strict=True):
        for column in ("name", "problem_id", "index", "seed", "prompt", "tokens", "law_ids", "law_probs"):
            assert np.array_equal(getattr(mine, column), getattr(others, column)), column
        assert mine.law_probs.dtype == np.float32


class ToyTokenizer:
    chat_template = None

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [ord(character) % VOCABULARY for character in text]}


TARGET = SimpleNamespace(
    tokenizer=ToyTokenizer(),
    vocab_size=VOCABULARY,
    max_context=100,
    weights_id="w",
    numerics="bitwise",
    fingerprint="f",
)


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let laws be random; the list gets the number of outputs of every problem whose laws are computed."""
    calls: list[int] = []

    def forced_laws(target: object, prompt: IntArray, outputs: Sequence[IntArray]) -> Iterator[Laws]:
        calls.append(len(outputs))
        yield laws(len(prompt) - 1, 0)
        yield from (laws(len(output), len(output)) for output in outputs)

    module = SimpleNamespace(forced_laws=forced_laws)  # the real one loads torch
    monkeypatch.setitem(sys.modules, "tts_orch.replay.teacher_forcing", module)  # type: ignore[arg-type]
    return calls


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"id": "a", "prompt": "What?"}\n{"id": "b", "prompt": "Why?"}\n')
    return RunConfig(
        problems=problems, engine={"target": "toy"}, method={"name": "majority_vote"}, out=tmp_path / "run"
    )


def journal(config: RunConfig, finished: dict[str, int]) -> None:
    """Add candidates of seven tokens, repetitive ones, to a run folder."""
    problems = read_problems(config.problems)
    with RunFolder(config, problems) as folder:
        folder.begin({"weights": "w", "numerics": "bitwise"}, ["f"])
        for problem_id, n in finished.items():
            for i in range(n):
                seed, tokens = trajectory_seed(0, problem_id, (i,)), (5, 6, 7, 5, 6, 7, 8 + i)
                folder.journal.record(Candidate(problem_id, (i,), seed, tokens, "", FinishReason.LENGTH))
            folder.journal.record(Candidate(problem_id, (90,), 1, (5,), "", FinishReason.ERROR))


class TestRecovery:
    def test_only_what_is_missing_is_computed(self, config: RunConfig, computed: list[int]) -> None:
        journal(config, {"a": 2, "b": 1})
        recorded = recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
        assert [one.name for one in recorded.trajectories] == ["a/0", "a/1", "b/0"]
        journal(config, {"b": 3})
        grown = recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
        assert [one.name for one in grown.trajectories] == ["a/0", "a/1", "b/0", "b/1", "b/2"]
        assert computed == [2, 1, 3]

    def test_a_limit_keeps_what_other_problems_have(self, config: RunConfig, computed: list[int]) -> None:
        journal(config, {"a": 2, "b": 1})
        recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
        journal(config, {"a": 3})
        limited = recover(FinishedRun.read(config.out, limit=1), lambda engine: TARGET)  # type: ignore[arg-type]
        assert limited.problem_ids == ["a"]
        recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
        assert computed == [2, 1, 3]

    def test_another_target_is_refused(self, config: RunConfig, computed: list[int]) -> None:
        journal(config, {"a": 1})
        other = SimpleNamespace(**{**vars(TARGET), "weights_id": "other"})
        with pytest.raises(RunFolderError, match="weights of toy were 'w' and are 'other'"):
            recover(FinishedRun.read(config.out), lambda engine: other)  # type: ignore[arg-type]

    def test_what_cannot_be_replayed_is_one_line(self, config: RunConfig, tmp_path: Path) -> None:
        with pytest.raises(RunFolderError, match=r"no manifest\.json; give a folder of `tts-orch run`"):
            FinishedRun.read(tmp_path)
        journal(config, {})
        with pytest.raises(RunFolderError, match="no finished candidates"):
            FinishedRun.read(config.out)
        config.problems.write_text('{"id": "a", "prompt": "What else?"}\n')
        with pytest.raises(RunFolderError, match=r"problem 1 .* edited; replay needs the problems as they were"):
            FinishedRun.read(config.out)
        config.problems.unlink()
        with pytest.raises(ProblemError, match=r"config\.yaml: problems: .*No such file or directory"):
            FinishedRun.read(config.out)

    def test_tokens_that_depend_on_drafts_are_refused(self, config: RunConfig) -> None:
        engine = config.engine.model_copy(update={"verification": "rejection"})
        journal(config.model_copy(update={"engine": engine}), {"a": 1})
        with pytest.raises(RunFolderError, match="replay needs --verification keyed"):
            FinishedRun.read(config.out)


class TestCommand:
    @pytest.fixture
    def folder(self, config: RunConfig, computed: list[int], monkeypatch: pytest.MonkeyPatch) -> Path:
        """A run folder whose recording was made before."""
        journal(config, {"a": 2, "b": 1})
        recover(FinishedRun.read(config.out), lambda engine: TARGET)  # type: ignore[arg-type]
        monkeypatch.setenv("COLUMNS", "120")
        return config.out

    def test_drafters_stand_side_by_side(
        self, folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
    ) -> None:
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

    def test_as_many_nodes_as_pay_where_rows_are_dear(self, folder: Path, tmp_path: Path) -> None:
        costs, report = tmp_path / "costs.json", tmp_path / "report.json"
        costs.write_text("[[1, 1.0], [2, 2.0], [64, 64.0]]")
        arguments = ["--node-budget", "--cost-curve", str(costs), "--json", str(report)]
        assert execute(["replay", str(folder), *arguments]) == 0
        assert json.loads(report.read_text())["drafters"]["stand"]["draft_nodes"] <= 4

    @pytest.mark.parametrize("content", ["{", "[]", "[[1]]", "[[2, 1.0], [1, 2.0]]", '[[1, "x"]]', "[[1, -1.0]]"])
    def test_a_bad_cost_curve_is_one_line(
        self, content: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        costs = tmp_path / "costs.json"
        costs.write_text(content)
        assert execute(["replay", str(folder), "--node-budget", "--cost-curve", str(costs)]) == 2
        assert f"tts-orch: {costs}: no cost curve; give" in capsys.readouterr().err

    def test_a_draft_tree_goes_to_the_drafter_that_has_one(self, folder: Path, tmp_path: Path) -> None:
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
            (["--json", "nodir/x.json"], "nodir/x.json: there is no folder nodir; make it, or name another file"),
        ],
    )
    def test_settings_that_do_not_go_together_are_one_line(
        self, folder: Path, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert execute(["replay", str(folder), *arguments]) == 2
        error = capsys.readouterr().err
        assert complaint in error
        assert error.count("\n") == 1
