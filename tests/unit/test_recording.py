"""Recordings: what their files bring back, how one is made while decoding, and how one is recovered from a finished run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.exactness.drafters import OracleDrafter
from tests.recordings import (
    LAW,
    SCALARS,
    TARGET,
    K,
    continuations,
    draw_forced_laws,
    journal,
    one_token_step,
    recording,
    run_config,
)
from tts_orch.config import RunConfig
from tts_orch.errors import ProblemError, RunFolderError
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import TrajectoryStart
from tts_orch.replay.recorder import RecordingDrafter
from tts_orch.replay.recording import Recording, problem_and_index
from tts_orch.replay.recovery import FinishedRun, recover
from tts_orch.replay.replayer import replay


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


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    return draw_forced_laws(monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    return run_config(tmp_path)


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
