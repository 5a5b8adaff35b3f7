"""`ray job submit` on a real head: exit states, logs, run folders, a stop, and what `tts-orch doctor` says of it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.ray_head import RayHead, ray_head
from tests.toys import save_toy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(550)]

PROBLEMS = "examples/problems/word_problems.jsonl"  # in the working directory that travels with a job


@pytest.fixture(scope="module")
def head() -> Iterator[RayHead]:
    with ray_head() as running:
        yield running


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_toy(tmp_path_factory.mktemp("toy")))


def run(toy: str, *arguments: str) -> list[str]:
    sizes = ["--kv-memory-gib", "0.05", "--max-new-tokens", "40", "-n", "4", "--method", "majority_vote"]
    uncompiled = ["--drafter", "none", "--numerics", "fast"]  # a fresh working directory has no compiled code
    return ["run", PROBLEMS, "--target", toy, "--template", "raw", *sizes, *uncompiled, *arguments]


def test_a_job_logs_its_progress_and_leaves_its_folder(head: RayHead, toy: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = head.submit("solves", run(toy, "--limit", "3", "--workers", "2", "--out", str(out)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"loading {toy}" in done.stdout
    assert re.search(r"^\d\d:\d\d:\d\d  3/3 problems  12 candidates .* tokens/s", done.stdout, re.MULTILINE)
    ours = done.stdout[done.stdout.index("loading") : done.stdout.rindex(str(out))]
    assert "\x1b" not in ours
    assert done.stdout.count(str(out)) == 2  # in the command that Ray repeats, and as the last line of the job
    assert len((out / "results.jsonl").read_text().splitlines()) == 3
    assert "succeeded" in head.job("status", "solves").stdout
    assert head.exit_code("solves") == 0


def test_a_relative_folder_would_vanish_and_is_refused(head: RayHead, toy: str) -> None:
    failed = head.submit("vanishes", run(toy, "--out", "runs/lost"))
    assert failed.returncode == 1
    assert "tts-orch: out: runs/lost is relative" in failed.stdout
    assert "give --out an absolute path" in failed.stdout
    assert head.exit_code("vanishes") == 2


def test_a_stopped_job_goes_on_where_it_was(head: RayHead, toy: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = run(toy, "--limit", "40", "--max-batch", "2", "--out", str(out))
    head.submit("is-stopped", command, wait=False)
    candidates = out / "candidates.jsonl"
    wait_until(lambda: candidates.is_file() and candidates.read_text().count("\n") >= 4)
    assert "stopped" in head.job("stop", "is-stopped").stdout.lower()
    assert "run the same command again to go on" in head.job("logs", "is-stopped").stdout
    finished = candidates.read_text()
    assert head.submit("goes-on", command).returncode == 0
    everything = candidates.read_text()
    assert everything.startswith(finished)
    paths = [(line["problem_id"], *line["path"]) for line in map(json.loads, everything.splitlines())]
    assert len(paths) == len(set(paths)) == 160


def wait_until(happens: Callable[[], bool], within_s: float = 90) -> None:
    deadline = time.monotonic() + within_s
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["address", "gcs_address"])
def test_the_doctor_finds_the_cluster_well(head: RayHead, toy: str, kind: str) -> None:
    said = doctor(head, "--target", toy, "--address", getattr(head, kind))
    assert said.returncode == 0, said.stdout + said.stderr
    assert re.search(r"^ok +cluster: ", said.stdout, re.MULTILINE)
    if kind == "gcs_address":
        assert re.search(r"^ok +node \S+: tts-orch", said.stdout, re.MULTILINE)


def test_the_doctor_says_what_nodes_cannot_reach(head: RayHead, toy: str) -> None:
    said = doctor(head, "--target", toy, "--address", head.gcs_address, "--store", "redis://127.0.0.1:1")
    assert said.returncode == 1
    assert re.search(r"^failure +node \S+: redis://127\.0\.0\.1:1 cannot be reached", said.stdout, re.MULTILINE)


def doctor(head: RayHead, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tts_orch", "doctor", *arguments]
    return subprocess.run(command, env=head.environment, capture_output=True, text=True, check=False, timeout=300)


def test_a_cluster_that_wants_a_token_is_explained(toy: str) -> None:
    with ray_head(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64) as head:
        head.environment.pop("RAY_AUTH_TOKEN")
        head.environment["RAY_AUTH_MODE"] = "disabled"
        for address in (head.address, head.gcs_address):
            said = doctor(head, "--target", toy, "--address", address)
            assert said.returncode == 1
            (line,) = (line for line in said.stdout.splitlines() if line.startswith("failure"))
            assert "RAY_AUTH_MODE" in line
