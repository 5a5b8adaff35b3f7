"""The command line: mistakes are one line, runs resume, settings win in order. No model takes part."""

from __future__ import annotations

import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.toys_decoder import ToyTokenizer
from tts_orch.bench.plan import BenchPlan
from tts_orch.cli import execute
from tts_orch.cli.progress import _line_every_s
from tts_orch.cli.settings import run_options, setting_option
from tts_orch.config import BudgetConfig, DraftingConfig, EngineConfig, LawConfig, RewardConfig, RunConfig
from tts_orch.errors import TargetError, WorkerLostError
from tts_orch.records import Candidate, FinishReason, Problem, SearchResult
from tts_orch.replay.recovery import FinishedRun
from tts_orch.seeds import trajectory_seed
from tts_orch.testing import fake_candidate

TREES = Path(__file__).parents[2] / "policies/drafting/trees"
GOOD = ["run", "problems.jsonl", "--target", "toy", "--method", "majority_vote", "-n", "4", "--out", "out"]


@dataclass(frozen=True)
class FakeWorker:
    worker: str = "host:1"
    fingerprint: str = "f0"
    weights_id: str = "w0"
    numerics: str = "bitwise"
    dtype: str = "float32"
    max_context: int = 100


class FakeOrchestrator:
    """Answers 8 with the even candidates and the candidate's own number with the odd ones."""

    decoded: list[tuple[str, tuple[int, ...]]] = []  # noqa: RUF012 - watched by the tests, emptied by the fixture
    created: list[dict[str, Any]] = []  # noqa: RUF012
    attempts: list[int] = []  # noqa: RUF012
    joined_later: dict[str, str] = {}  # noqa: RUF012
    stop_after: int | None = None
    stop_by = signal.SIGTERM
    reward = None
    drifts = False
    tokenizer = ToyTokenizer()

    def __init__(self, *, engine: EngineConfig, on_candidate: Callable[[Candidate], None], **settings: Any) -> None:
        if engine.target == "nowhere":
            raise TargetError("nowhere: unknown model; give another")
        self.created.append({"engine": engine, **settings})
        self.workers = [FakeWorker()]
        self.fingerprints = {worker.worker: worker.fingerprint for worker in self.workers} | self.joined_later
        self._on_candidate = on_candidate
        self._on_tokens = settings["on_tokens"]

    def __enter__(self) -> FakeOrchestrator:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def search_many(
        self, problems: Iterable[Problem], method: Any, *, seed: int, law: Any, journal: Any, attempt: int, budget: Any
    ) -> Iterator[SearchResult]:
        self.attempts.append(attempt)
        for problem in problems:
            found = [self._candidate(problem, index, seed, journal) for index in range(method.n)]
            counts = {
                "generated_tokens": sum(one.n_tokens for one in found),
                "kept_tokens": sum(one.n_tokens for one in found),
                "verify_steps": sum(one.verify_steps for one in found),
            }
            yield SearchResult(problem.id, method.name, "8", found, (0,), {"8": 1.0}, **counts)

    def statistics(self) -> dict[str, float]:
        return {"prefill_tokens": 12, "cached_tokens": 84}

    def forget(self) -> None:
        self.has_forgotten = True

    def search(self, problem: Problem, method: Any, *, seed: int, law: Any, use_drafts: bool) -> SearchResult:
        assert self.has_forgotten, "drafts of the comparison know the tokens of the run"
        shift = int(self.drifts and use_drafts)
        found = [fake_candidate("8", (i,), problem_id=problem.id, n_tokens=3 + shift) for i in range(method.n)]
        return SearchResult(problem.id, method.name, "8", found, generated_tokens=sum(one.n_tokens for one in found))

    def _candidate(self, problem: Problem, index: int, run_seed: int, journal: Any) -> Candidate:
        seed = trajectory_seed(run_seed, problem.id, (index,))
        candidate = journal.finished(problem.id, (index,), seed)
        if candidate is None:
            if len(self.decoded) == self.stop_after:
                os.kill(os.getpid(), self.stop_by)
            answer = str(index) if index % 2 else "8"
            candidate = Candidate(
                problem.id, (index,), seed, (1, 2, index), answer, FinishReason.EOS, answer, verify_steps=2
            )
            self.decoded.append((problem.id, (index,)))
            self._on_tokens(3)
            journal.record(candidate)
        self._on_candidate(candidate)
        return candidate


@pytest.fixture(autouse=True)
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[FakeOrchestrator]]:
    module = types.ModuleType("tts_orch.orchestrator")
    module.Orchestrator = FakeOrchestrator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tts_orch.orchestrator", module)
    monkeypatch.setattr(FakeOrchestrator, "decoded", [])
    monkeypatch.setattr(FakeOrchestrator, "created", [])
    monkeypatch.setattr(FakeOrchestrator, "attempts", [])
    monkeypatch.chdir(tmp_path)
    write_problems({"id": "a", "prompt": "4 + 4?", "answer": "8"}, {"id": "b", "prompt": "1 + 2?", "answer": "3"})
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield FakeOrchestrator
    for number, handler in before.items():
        signal.signal(number, handler)
    logging.getLogger("tts_orch").setLevel(logging.NOTSET)  # --debug sets it


def write_problems(*problems: dict[str, Any]) -> None:
    Path("problems.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))


def lines(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


# ---- mistakes


def problem_file(*content: str) -> Callable[[], None]:
    return lambda: (Path("problems.jsonl").write_text("\n".join(content)), None)[1]


def yaml_file(content: str, encoding: str = "utf-8") -> Callable[[], None]:
    return lambda: (Path("run.yaml").write_text(content, encoding), None)[1]


def foreign_folder() -> None:
    Path("out").mkdir()
    Path("out/thesis.tex").write_text("")


def unwritable_folder() -> None:
    Path("out").write_text("a file")


def tree_file() -> None:
    Path("tree.json").write_text("{}")


def earlier_run() -> None:
    assert execute([*GOOD, "--seed", "7"]) == 0


LONG = json.dumps({"id": "long", "prompt": "x" * 100})
CHAT = json.dumps({"id": "chat", "messages": [{"role": "user", "content": "?"}]})

MISTAKES = [
    (problem_file('{"id": "a", "prompt": "?"}', '{"id": "b", "pro'), [], r"problems\.jsonl:2: "),
    (problem_file('{"id": "a"}'), [], r"problems\.jsonl:1: .*prompt"),
    (problem_file('{"id": "a", "prompt": "?"}', '{"id": "a", "prompt": "!"}'), [], r"problems\.jsonl:2: .*'a'"),
    (problem_file(""), [], "problems.jsonl: no problem"),
    (lambda: Path("problems.jsonl").unlink(), [], "problems.jsonl: No such file"),
    (None, ["--target", "nowhere"], "nowhere: unknown model"),
    (None, ["--top-p", "0"], "top_p: .* greater than 0"),
    (None, ["-n", "0"], "n: .* greater than or equal to 1"),
    (None, ["-n", "many"], "'-n': 'many' is not a valid integer"),
    (None, ["--temperature", "nan"], "temperature: "),
    (None, ["--method", "magic"], "'magic' is not one of 'best_of_n', 'majority_vote'"),
    (
        problem_file('{"id": "a", "prompt": "?"}', LONG),
        [],
        r"problems\.jsonl: problem 'long': 100 prompt tokens, but toy reads",
    ),
    (problem_file(CHAT), ["--template", "raw"], r"problems\.jsonl: problem 'chat' has `messages` only"),
    (None, ["--max-new-tokens", "5", "--min-new-tokens", "9"], "min_new_tokens: 9 is impossible; .* to max_new_tokens"),
    (None, ["--stop", "x", "--stop", ""], r"stop\.1: .* at least 1 character"),
    (None, ["--beam-width", "2"], "beam_width: unknown setting of majority_vote; known settings: aggregation, "),
    (
        None,
        ["--method", "own", "--policy", "nope"],
        r"policy: nope is no entry point of the group .*install its package",
    ),
    (None, ["--choice", "weighted"], "choice: weighted needs a reward model"),
    (None, ["--temprature", "1"], "No such option.* '?--temprature.*--temperature"),
    (None, ["--config", "missing.yaml"], "missing.yaml: No such file"),
    (yaml_file("law: {topp: 1}"), ["--config", "run.yaml"], "topp: unknown setting; did you mean 'top_p'"),
    (yaml_file("sead: 1"), ["--config", "run.yaml"], "sead: unknown setting; did you mean 'seed'"),
    (yaml_file("law: [1"), ["--config", "run.yaml"], r"run\.yaml:\d+: not valid YAML"),
    (yaml_file("# Zürich", "latin-1"), ["--config", "run.yaml"], r"run\.yaml: .*can't decode byte 0xfc .*UTF-8"),
    (yaml_file("address: 2024-02-30"), ["--config", "run.yaml"], r"run\.yaml: day .*quotes"),
    (yaml_file("1: 2"), ["--config", "run.yaml"], r"run\.yaml: 1 is not the name of a setting"),
    (yaml_file("law: {yes: 2}"), ["--config", "run.yaml"], r"run\.yaml: True is not the name of a setting"),
    (yaml_file("- 1"), ["--config", "run.yaml"], r"run\.yaml: expected `name: value` lines"),
    (foreign_folder, [], r"out: holds 'thesis\.tex'"),
    (unwritable_folder, [], "out: File exists"),
    (earlier_run, [], "out: seed is 7 in this folder and 0 now"),
    (
        earlier_run,
        ["--seed", "7", "--verification", "rejection"],
        "verification is 'keyed' in this folder and 'rejection' now",
    ),
    (None, ["--verification", "guess"], "'guess' is not one of 'keyed', 'rejection'"),
    (
        None,
        ["--draft-tree", "no.json", "--no-node-budget"],
        r"draft_tree: no\.json is no file; make one with `tts-orch tree opt",
    ),
    (tree_file, ["--draft-tree", "tree.json", "--no-node-budget"], r"tree\.json: not a tree file"),
    (tree_file, ["--draft-tree", "tree.json"], "draft_tree: node_budget chooses nodes by itself; turn it off"),
    (tree_file, ["--draft-tree", "tree.json", "--drafter", "anpd"], "draft_tree: only stand drafts by it, not anpd"),
    (
        None,
        ["--update-from-prefill", "nothing", "--no-update-from-accepted", "--no-update-from-rejected"],
        "update_from_accepted: stand learns nothing",
    ),
    (None, ["--drafters", "math"], "'--drafters': 'math': write NAME=FOLDER"),
    (None, ["--drafters", "math=no"], "drafters: math: no is no folder; make one with `tts-orch drafter train`"),
    (None, ["--drafters", "a=.", "--drafters", "a=.."], "--drafters: a name is given twice"),
    (None, ["--drafter", "neural"], "drafter: neural drafts by trained drafters; name one"),
    (None, ["--statistics-scope", "world"], "'world' is not one of 'request', 'problem', 'task', 'run'"),
]


@pytest.mark.parametrize(("prepare", "arguments", "message"), MISTAKES, ids=[mistake[2] for mistake in MISTAKES])
def test_a_mistake_is_one_line_and_exit_code_2(
    prepare: Callable[[], None] | None, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if prepare:
        prepare()
    capsys.readouterr()
    assert execute([*GOOD, *arguments]) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(r"(loading \S+\n)?", captured.out)  # some mistakes are found in the target only
    assert captured.err.count("\n") == 1
    assert re.search(message, captured.err), captured.err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--target", "toy", "--method", "majority_vote"], "problems: missing"),
        (["problems.jsonl", "--target", "toy"], "method: missing"),
        (["problems.jsonl", "--target", "toy", "-n", "4"], "method: missing"),
        (["problems.jsonl", "--method", "majority_vote"], "target: missing"),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", *arguments]) == 2
    assert capsys.readouterr().err == f"tts-orch: {named}; give it as an option or in a settings file\n"


def test_a_failure_at_run_time_is_one_line_and_exit_code_1(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise WorkerLostError("worker host:1 died\nand more")

    monkeypatch.setattr(fake, "search_many", fail)
    assert execute(GOOD) == 1
    assert capsys.readouterr().err == "tts-orch: worker host:1 died and more\n"


def test_an_error_of_ray_is_one_line_and_exit_code_1(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class RayError(Exception):
        pass

    def fail(*_: object, **__: object) -> None:
        raise RayError("ray::load()\n  File x\nOSError: the cluster is gone")

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RayError)))
    monkeypatch.setattr(fake, "search_many", fail)
    assert execute(GOOD) == 1
    assert capsys.readouterr().err == "tts-orch: Ray failed: OSError: the cluster is gone\n"


@pytest.mark.parametrize(("n_characters", "exit_code"), [(99, 0), (100, 2)])
def test_prompts_are_checked_before_anything_is_written(
    fake: type[FakeOrchestrator], n_characters: int, exit_code: int
) -> None:
    write_problems({"id": "a", "prompt": "?"}, {"id": "long", "prompt": "x" * n_characters})
    assert execute(GOOD) == exit_code
    assert Path("out").exists() == bool(fake.decoded) == (exit_code == 0)


@pytest.mark.parametrize(
    "settings",
    [
        "problems: 5",
        "problems: null",
        "method: [majority_vote]",
        "method: {name: [1]}",
        "method: 3",
        "out: null",
        "law: 1",
    ],
)
def test_settings_of_an_odd_kind_are_one_line(settings: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = {"problems": "problems.jsonl", "method": "majority_vote", "engine": {"target": "toy"}}
    Path("run.yaml").write_text(yaml.safe_dump({**values, **yaml.safe_load(settings)}))
    assert execute(["run", "--config", "run.yaml"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"tts-orch: {settings.partition(':')[0]}")
    assert error.count("\n") == 1


@pytest.mark.parametrize("shows_traceback", [False, True])
def test_a_fault_of_ours_is_one_line_and_its_traceback_is_logged_when_asked_for(
    fake: type[FakeOrchestrator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    shows_traceback: bool,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise KeyError("x\ny")

    monkeypatch.setattr(fake, "search_many", fail)
    assert execute([*(["--debug"] if shows_traceback else []), *GOOD]) == 1
    assert capsys.readouterr().err == (
        "tts-orch: internal error: KeyError: 'x\\ny'; `tts-orch --debug ...` shows where\n"
    )
    assert ("Traceback" in caplog.text) == shows_traceback


# ---- runs


def test_a_run_leaves_its_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(GOOD) == 0
    assert len(lines("out/candidates.jsonl")) == 8
    assert [(line["problem_id"], line["answer"], line["correct"]) for line in lines("out/results.jsonl")] == [
        ("a", "8", True),
        ("b", "8", False),
    ]
    output = capsys.readouterr().out
    assert output.startswith("loading toy\n")
    assert re.search(r"^\d\d:\d\d:\d\d  2/2 problems  8 candidates", output, re.MULTILINE)
    assert "accuracy, majority_vote" in output


@pytest.mark.parametrize("elsewhere", [["--out", "out"], []])
def test_a_ray_job_wants_a_folder_that_outlives_it(
    elsewhere: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    command = [*GOOD[: GOOD.index("--out")], *elsewhere]
    assert execute(command) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(r"out: \S+ is relative.* give --out an absolute path", line)
    assert execute([*GOOD[:-1], str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(("running_for_s", "next_line_s"), [(0, 5), (100, 5), (400, 20), (36000, 60)])
def test_a_log_gets_fewer_lines_the_longer_it_is(running_for_s: float, next_line_s: float) -> None:
    assert _line_every_s(running_for_s) == next_line_s


def test_the_summary_counts_every_candidate(capsys: pytest.CaptureFixture[str]) -> None:
    execute(GOOD)
    assert re.search(r"^prefill tokens +12 computed, 84 kept", capsys.readouterr().out, re.MULTILINE)
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["accuracy"]["at_1"]["mean"] == pytest.approx((2 / 4 + 1 / 4) / 2)  # a: 8 1 8 3, b: 8 1 8 3
    assert summary["accuracy"]["of_method"]["mean"] == 0.5
    assert summary["accuracy"]["pass_at"]["4"]["mean"] == 1.0
    assert summary["accuracy"]["majority_at"]["4"]["mean"] == 0.5
    assert list(summary["accuracy"]["pass_at"]) == ["1", "2", "4"]
    assert (summary["kept_tokens"], summary["decoded_tokens"], summary["tau"]) == (24, 24, 1.5)
    assert summary["finish_reasons"] == {"eos": 8}


def test_the_summary_says_who_drafted_what(
    fake: type[FakeOrchestrator], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(GOOD)
    assert json.loads(Path("out/summary.json").read_text())["drafters"] == {}
    assert "drafts of" not in capsys.readouterr().out
    counted = {"nodes_drafted_by_stand": 30.0, "nodes_drafted_by_math": 10.0, "nodes_accepted_by_math": 5.0}
    pooled = {"pool_requests": 9.0, "pool_waited_seconds": 1.25, "pool_hidden_seconds": 3.0}
    monkeypatch.setattr(fake, "statistics", lambda self: {"draft_nodes": 40.0, **counted, **pooled})
    execute(GOOD)
    printed = capsys.readouterr().out
    assert re.search(r"^drafter pool +1\.2 s waited, 3\.0 hidden *$", printed, re.MULTILINE)
    rows = re.findall(r"^drafts of (\w+) +(\S+) %, of accepted (\S+) % *$", printed, re.MULTILINE)
    assert rows == [("math", "25", "100"), ("stand", "75", "0")]
    assert json.loads(Path("out/summary.json").read_text())["drafters"]["math"]["drafted"] == 10


def test_problems_without_reference_answers_have_no_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    write_problems({"id": "a", "prompt": "?"})
    assert execute(GOOD) == 0
    assert json.loads(Path("out/summary.json").read_text())["accuracy"] is None
    assert "accuracy" not in capsys.readouterr().out


def test_nothing_is_decoded_twice(fake: type[FakeOrchestrator]) -> None:
    execute(GOOD)
    assert execute(GOOD) == 0
    assert len(fake.decoded) == 8
    summary = json.loads(Path("out/summary.json").read_text())
    assert summary["decoded_tokens"] == 24


def test_workers_that_join_late_are_written_down(fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "joined_later", {"late:2": "f1"})
    assert execute(GOOD) == 0
    assert json.loads(Path("out/manifest.json").read_text())["fingerprints"] == ["f0", "f1"]
    assert json.loads(Path("out/summary.json").read_text())["workers"] == {"host:1": "f0", "late:2": "f1"}


def test_a_larger_n_only_adds(fake: type[FakeOrchestrator]) -> None:
    execute(GOOD)
    assert execute([*GOOD, "-n", "6"]) == 0
    assert fake.decoded[8:] == [("a", (4,)), ("a", (5,)), ("b", (4,)), ("b", (5,))]
    assert [line["n"] for line in lines("out/results.jsonl")] == [6, 6]


def test_a_larger_limit_only_adds(fake: type[FakeOrchestrator]) -> None:
    execute([*GOOD, "--limit", "1"])
    assert execute(GOOD) == 0
    assert fake.decoded == [(name, (index,)) for name in "ab" for index in range(4)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_a_folder_that_can_be_resumed(
    fake: type[FakeOrchestrator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    signal.signal(number, signal.SIG_IGN)
    monkeypatch.setattr(fake, "stop_after", 6)
    monkeypatch.setattr(fake, "stop_by", number)
    assert execute(GOOD) == 130
    assert capsys.readouterr().err == "tts-orch: interrupted; run the same command again to go on in out\n"
    assert len(lines("out/candidates.jsonl")) == 6
    assert json.loads(Path("out/summary.json").read_text())["n_finished"] == 1

    monkeypatch.setattr(fake, "stop_after", None)
    assert execute(GOOD) == 0
    assert fake.decoded == [(name, (index,)) for name in "ab" for index in range(4)]
    execute([*GOOD, "--out", "unbroken"])
    for name in ("candidates.jsonl", "results.jsonl"):
        assert lines(f"out/{name}") == lines(f"unbroken/{name}")


def test_the_comparison_with_plain_decoding_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*GOOD, "--compare-plain", "2"]) == 0
    assert "the same 24 tokens" in capsys.readouterr().out
    comparison = json.loads(Path("out/summary.json").read_text())["plain_decoding"]
    assert (comparison["n_problems"], comparison["n_tokens"]) == (2, 24)


def test_under_rejection_speed_is_compared_and_tokens_may_differ(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "drifts", True)
    assert execute([*GOOD, "--compare-plain", "2", "--verification", "rejection"]) == 0
    output = capsys.readouterr().out
    assert re.search(r"against plain decoding +\d+\.\d\d x, the same law only", output)
    comparison = json.loads(Path("out/summary.json").read_text())["plain_decoding"]
    assert (comparison["n_tokens"], comparison["n_drafted_tokens"]) == (24, 32)
    rates = [comparison["n_drafted_tokens"] / comparison["drafted_s"], comparison["n_tokens"] / comparison["plain_s"]]
    assert comparison["speedup"] == pytest.approx(rates[0] / rates[1])


def test_drafts_that_change_a_token_fail_the_run(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fake, "drifts", True)
    assert execute([*GOOD, "--compare-plain", "1"]) == 1
    assert (
        "a: candidate [0] has token None at output position 3 without drafts and 0 with drafts"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("verification", ["keyed", "rejection"])
def test_acceptance_is_printed_with_the_verification_it_belongs_to(
    capsys: pytest.CaptureFixture[str], verification: str
) -> None:
    assert execute([*GOOD, "--verification", verification]) == 0
    output = capsys.readouterr().out
    assert f"tau 1.50 ({verification})" in output
    assert re.search(rf"tau \({verification}\) +1\.50", output)
    assert json.loads(Path("out/summary.json").read_text())["verification"] == verification


@pytest.mark.parametrize(("verification", "n_lines"), [("keyed", 0), ("rejection", 1)])
def test_resuming_under_rejection_says_what_is_promised_and_draws_anew(
    fake: type[FakeOrchestrator],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verification: str,
    n_lines: int,
) -> None:
    arguments = [*GOOD, "--verification", verification]
    promise = (
        "finished candidates are kept, the rest is drawn anew: rejection verification promises the law, not the same"
    )
    monkeypatch.setattr(fake, "stop_after", 2)
    assert execute(arguments) == 130
    assert promise not in capsys.readouterr().out
    monkeypatch.setattr(fake, "stop_after", None)
    assert execute([*arguments, "--drafter", "none", "-n", "5"]) == 0
    assert capsys.readouterr().out.count(promise) == n_lines
    assert fake.attempts == [0, 1]
    assert fake.decoded == [
        ("a", (0,)),
        ("a", (1,)),
        ("a", (2,)),
        ("a", (3,)),
        ("a", (4,)),
        *(("b", (i,)) for i in range(5)),
    ]
    assert execute([*arguments, "--limit", "1", "-n", "5"]) == 0
    assert promise not in capsys.readouterr().out, "there was nothing left to draw"


def test_where_no_problem_was_stopped_in_nothing_is_said(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*GOOD, "--verification", "rejection"]
    monkeypatch.setattr(fake, "stop_after", 4)
    assert execute(arguments) == 130, "between the two problems"
    monkeypatch.setattr(fake, "stop_after", None)
    assert execute(arguments) == 0
    assert execute([*arguments, "-n", "6"]) == 0
    assert "drawn anew" not in capsys.readouterr().out


# ---- settings


def test_trained_drafters_come_from_options_and_from_the_yaml_file(fake: type[FakeOrchestrator]) -> None:
    for name in ("math", "chat", "other"):
        Path(name).mkdir()
    yaml_file("{engine: {target: toy, drafter: neural, drafters: {math: math, chat: other}}}")()
    assert execute([*GOOD, "--config", "run.yaml", "--drafters", "chat=chat", "--routing", "merged"]) == 0
    absolute = {name: Path.cwd() / name for name in ("math", "chat")}
    engine = fake.created[0]["engine"]
    assert (engine.drafter, engine.drafters, engine.routing) == ("neural", absolute, "merged")
    written = yaml.safe_load(Path("out/config.yaml").read_text())["engine"]
    assert written["drafters"] == {name: str(folder) for name, folder in absolute.items()}


def test_a_draft_tree_is_found_by_workers_elsewhere(fake: type[FakeOrchestrator]) -> None:
    shutil.copy(TREES / "default.json", "tree.json")
    assert execute([*GOOD, "--draft-tree", "tree.json", "--no-node-budget"]) == 0
    assert fake.created[0]["engine"].draft_tree == Path.cwd() / "tree.json"
    assert yaml.safe_load(Path("out/config.yaml").read_text())["engine"]["draft_tree"] == str(Path.cwd() / "tree.json")


@pytest.mark.parametrize(
    ("options", "is_warned"), [(["--max-nodes", "81"], True), (["--max-nodes", "80"], False), ([], False)]
)
def test_a_tree_smaller_than_what_is_asked_for_is_remarked(
    caplog: pytest.LogCaptureFixture, options: list[str], is_warned: bool
) -> None:
    assert execute([*GOOD, "--no-node-budget", *options]) == 0
    assert ("default.json has only 80 nodes, and no more are drafted" in caplog.text) == is_warned


def test_a_run_folder_is_read_and_resumed_from_everywhere(
    fake: type[FakeOrchestrator], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute(GOOD) == 0
    folder = Path("out").absolute()
    monkeypatch.chdir("/")
    assert FinishedRun.read(folder).problems.keys() == {"a", "b"}
    assert execute(["run", "--config", str(folder / "config.yaml"), "-n", "5"]) == 0
    assert len(fake.decoded) == 10, "only one more of each"


def test_defaults_in_the_help_read_as_they_are_typed() -> None:
    options = {option.name: option.help or "" for option in run_options()}
    assert options["engine_node_budget"].endswith("[default: --node-budget]")
    assert options["engine_table_entries"].startswith("stand: ")
    workloads = setting_option("", ("workloads",), BenchPlan.model_fields["workloads"]).help or ""
    assert workloads.endswith("[default: gsm8k_test, aime2024, math500, humaneval, mt_bench]")
    assert options["method_delimiters"].endswith(r"[default: $'\n\n']")
    assert "rebase: " in options["method_softmax_temperature"]
    assert options["method_softmax_temperature"].count("[default:") == 2


def test_a_dry_run_shows_how_drafts_are_made(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        execute([*GOOD, "--dry-run", "--verification", "rejection", "--no-unigram", "--statistics-scope", "task"]) == 0
    )
    engine = yaml.safe_load(capsys.readouterr().out)["engine"]
    assert engine.keys() >= set(DraftingConfig.model_fields)
    assert (engine["verification"], engine["unigram"], engine["statistics_scope"]) == ("rejection", False, "task")


def test_options_win_over_the_yaml_file_and_it_wins_over_defaults(fake: type[FakeOrchestrator]) -> None:
    yaml_file("{seed: 3, engine: {target: toy, drafter: none}, law: {temperature: 0.1, top_k: 5}, workers: 2}")()
    arguments = ["--config", "run.yaml", "--temperature", "0.9", "--method", "best_of_n", "--choice", "borda"]
    assert execute(["run", "problems.jsonl", *arguments]) == 0
    written = yaml.safe_load(Path("runs/problems-best_of_n/config.yaml").read_text())
    assert (written["law"]["temperature"], written["law"]["top_k"], written["law"]["top_p"]) == (0.9, 5, 1.0)
    assert (written["seed"], written["method"]["choice"]) == (3, "borda")
    assert (fake.created[0]["engine"].drafter, fake.created[0]["workers"]) == ("none", 2)


def test_the_written_settings_are_a_yaml_file_that_resumes(fake: type[FakeOrchestrator]) -> None:
    execute([*GOOD, "--stop", "x", "--stop", "y"])
    assert execute(["run", "--config", "out/config.yaml"]) == 0
    assert len(fake.decoded) == 8


def test_a_method_may_be_a_bare_name_in_the_yaml_file() -> None:
    yaml_file("{method: majority_vote, engine: {target: toy}}")()
    assert execute(["run", "problems.jsonl", "--config", "run.yaml", "-n", "3"]) == 0
    written = yaml.safe_load(Path("runs/problems-majority_vote/config.yaml").read_text())
    assert (written["method"]["name"], written["method"]["n"]) == ("majority_vote", 3)


def test_another_method_leaves_the_settings_of_the_one_in_the_yaml_file() -> None:
    execute(["run", "problems.jsonl", "--target", "toy", "--method", "best_of_n", "--choice", "borda", "--out", "out"])
    again = ["run", "--config", "out/config.yaml"]
    assert execute([*again, "--method", "best_of_n", "-n", "17"]) == 0
    assert yaml.safe_load(Path("out/config.yaml").read_text())["method"]["choice"] == "borda"
    assert execute([*again, "--method", "majority_vote", "--out", "other"]) == 0
    method = yaml.safe_load(Path("other/config.yaml").read_text())["method"]
    assert (method["name"], method["n"], method["choice"]) == ("majority_vote", 16, "majority")


def test_a_dry_run_prints_a_settings_file_and_the_work_and_touches_nothing(
    fake: type[FakeOrchestrator], capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute([*GOOD, "--dry-run", "--seed", "3", "--limit", "1"]) == 0
    text = capsys.readouterr().out
    assert "\n# 1 problems x 4 candidates, of them 4 to decode\n" in text
    assert not Path("out").exists()
    assert fake.created == []
    assert execute([*GOOD, "--seed", "3", "--limit", "1"]) == 0
    assert yaml.safe_load(text) == yaml.safe_load(Path("out/config.yaml").read_text())


def test_a_dry_run_looks_into_the_folders_of_drafters(capsys: pytest.CaptureFixture[str]) -> None:
    Path("math").mkdir()
    arguments = [*GOOD, "--dry-run", "--drafters", "math=math"]
    assert execute(arguments) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert "math/config.json: no readable configuration of a model" in captured.err
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2}
    Path("math/config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    Path("math/model.safetensors").write_bytes(bytes(2**20))
    assert execute(arguments) == 0
    assert (
        f"\n# drafter math: llama, 1.0 MiB of weights in {Path.cwd() / 'math'}; keeps 0.5 KiB a token of each candidate in "
        "float32, outside kv_memory_gib\n"
    ) in capsys.readouterr().out


def test_a_dry_run_counts_what_is_there_and_refuses_another_identity(capsys: pytest.CaptureFixture[str]) -> None:
    execute([*GOOD, "--limit", "1"])
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path("out").iterdir()}
    assert execute([*GOOD, "-n", "6", "--dry-run"]) == 0
    assert "\n# 2 problems x 6 candidates, of them 8 to decode\n" in capsys.readouterr().out
    assert execute([*GOOD, "--temperature", "0.1", "--dry-run"]) == 2
    assert "law.temperature is 0.7 in this folder and 0.1 now" in capsys.readouterr().err
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in Path("out").iterdir()} == before


@pytest.mark.parametrize(
    ("prepare", "message"), [(problem_file('{"id": "a"}'), "problems.jsonl:1"), (foreign_folder, "out: holds")]
)
def test_a_dry_run_finds_mistakes(
    prepare: Callable[[], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare()
    assert execute([*GOOD, "--dry-run"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"tts-orch: {message}")
    assert captured.out == ""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"]])
def test_help_is_quick_and_loads_neither_torch_nor_ray(arguments: list[str]) -> None:
    code = (
        "import sys; from tts_orch.cli import execute; code = execute(sys.argv[1:]); "
        "assert not {'torch', 'ray', 'transformers'} & set(sys.modules); sys.exit(code)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert after.ru_utime - before.ru_utime < 1.0


def test_help_of_run_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["run", "--help"]) == 0
    text = capsys.readouterr().out
    assert "tts-orch run problems.jsonl --target smollm2 --method majority_vote -n 16" in text
    sections = ["Problems and method:", "Sampling:", "Reward model:", "Engine:", "Drafting:", "Cluster:"]
    assert sorted(sections, key=text.index) == sections
    drafting = text[text.index("Drafting:") : text.index("Cluster:")]
    for name in DraftingConfig.model_fields:
        assert f"--{name.replace('_', '-')}" in drafting


def test_every_setting_has_an_option_with_help() -> None:
    options = run_options()
    assert all(option.help for option in options)
    places = {".".join(option.place) for option in options}
    assert places >= {f"law.{name}" for name in LawConfig.model_fields} | {
        f"engine.{name}" for name in EngineConfig.model_fields
    }
    assert places >= {f"reward.{name}" for name in RewardConfig.model_fields}
    assert places >= {f"budget.{name}" for name in BudgetConfig.model_fields}
    assert places >= set(RunConfig.model_fields) - {"problems", "engine", "method", "law", "reward", "budget"}
    flags = [flag for option in options for flag in option.opts]
    assert len(flags) == len(set(flags))


def test_steps_rewards_and_budgets_have_options(fake: type[FakeOrchestrator]) -> None:
    steps = ["--method", "dvts", "--delimiters", "x", "--delimiters", "y", "--max-step-tokens", "9"]
    reward = ["--reward-kind", "callable", "--reward-model", "math:prod", "--reward-batch", "2"]
    assert execute([*GOOD, *steps, *reward, "--problem-seconds", "9", "--run-tokens", "5"]) == 0
    settings = yaml.safe_load(Path("out/config.yaml").read_text())
    assert (settings["method"]["delimiters"], settings["method"]["max_step_tokens"]) == (["x", "y"], 9)
    assert (settings["budget"]["problem_seconds"], settings["budget"]["run_tokens"]) == (9, 5)
    created = fake.created[0]["reward"]
    assert (created.kind, created.model, created.batch) == ("callable", "math:prod", 2)


@pytest.mark.parametrize(
    ("options", "is_warned"),
    [
        (["--delimiters", ". "], True),
        (["--delimiters", ". ", "--reward-delimiters", ". "], False),
        (["--delimiters", ". ", "--reward-kind", "classifier", "--reward-model", "some/model"], False),
        ([], False),
    ],
)
def test_steps_that_end_elsewhere_for_the_reward_model_are_remarked(
    caplog: pytest.LogCaptureFixture, options: list[str], is_warned: bool
) -> None:
    assert execute([*GOOD, "--method", "beam_search", "--reward-model", "math:prod", "--dry-run", *options]) == 0
    assert ("steps of the search end at '. '" in caplog.text) == is_warned


def test_steps_without_a_reward_model_are_a_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*GOOD, "--method", "beam_search"]) == 2
    assert capsys.readouterr().err.startswith("tts-orch: reward: beam_search needs a reward model")


@pytest.mark.parametrize("more", [[], ["--dry-run"]])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nosuch:fn", "reward.model: nosuch:fn cannot be imported (No module named 'nosuch')"),
        ("math:nosuch", "reward.model: math:nosuch cannot be imported"),
        ("broken:fn", "reward.model: broken:fn cannot be imported (no weights)"),
        ("/nowhere", "reward.model: /nowhere: there is no model here"),
        ("empty", "reward.model: empty: no config.json in this folder"),
    ],
)
def test_a_reward_model_that_is_not_there_is_named_before_anything_is_loaded(
    fake: type[FakeOrchestrator], capsys: pytest.CaptureFixture[str], more: list[str], model: str, message: str
) -> None:
    Path("empty").mkdir()
    Path("broken.py").write_text("raise RuntimeError('no weights')")
    assert execute([*GOOD, "--method", "best_of_n", "--reward-model", model, *more]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"tts-orch: {message}")
    assert captured.err.count("\n") == 1
    assert (captured.out, fake.created, Path("out").exists()) == ("", [], False)


def test_a_reward_function_may_be_in_the_working_folder(fake: type[FakeOrchestrator]) -> None:
    Path("my_rewards_of_this_test.py").write_text("def fn(problem, steps): return [1.0]")
    assert execute([*GOOD, "--method", "best_of_n", "--reward-model", "my_rewards_of_this_test:fn"]) == 0
    assert fake.created[0]["reward"].model == "my_rewards_of_this_test:fn"


@pytest.mark.parametrize(
    ("method", "is_used"),
    [
        (["majority_vote"], False),
        (["majority_vote", "--choice", "weighted"], True),
        (["best_of_n", "--choice", "majority"], True),
        (["budget_forcing"], False),
    ],
)
def test_a_reward_model_that_nobody_asks_is_not_loaded(
    fake: type[FakeOrchestrator], caplog: pytest.LogCaptureFixture, method: list[str], is_used: bool
) -> None:
    assert execute([*GOOD, "--reward-model", "math:prod", "--method", *method]) == 0
    assert (fake.created[0]["reward"] is not None) is is_used
    n_warnings = caplog.text.count(f"reward: {method[0]} asks no reward model, so none is loaded")
    assert n_warnings == (0 if is_used else 1)


def test_self_certainty_needs_no_model_and_reads_no_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute([*GOOD, "--method", "dvts", "--reward-kind", "self_certainty", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "kind: self_certainty" in text
    assert "generated tokens" in text
    assert "reward tokens" not in text
