"""What `tts-orch doctor` says of a machine; clusters are looked at in tests/cluster/test_jobs.py."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from tests.store.redis_servers import Server, find_server
from tts_orch.cli import execute
from tts_orch.doctor.authentication import check_authentication
from tts_orch.doctor.cluster import check_cluster
from tts_orch.doctor.drafters import check_drafters
from tts_orch.doctor.finding import Finding, failure, ok, stopping_at_errors, warning
from tts_orch.doctor.installation import check_installation
from tts_orch.doctor.store import check_store
from tts_orch.doctor.target import check_target
from tts_orch.drafters.head_config import HeadConfig
from tts_orch.engine.model_files import weights_id
from tts_orch.errors import ClusterError, StoreError, TargetError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS", "TTS_ORCH_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TTS_ORCH_CACHE", str(tmp_path / "cache"))
    return tmp_path


# ---- installation


def test_a_good_installation_is_well() -> None:
    assert [finding.check for finding in check_installation()] == ["python", "packages", "device", "cache"]
    assert {finding.state for finding in check_installation()} == {"ok"}


@pytest.mark.parametrize(("installed", "said"), [("1.0", "ray 1.0 is not >="), (None, "ray is missing")])
def test_a_missing_or_old_package_is_named(installed: str | None, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "ray":
            return metadata.version(name)
        if installed is None:
            raise metadata.PackageNotFoundError
        return installed

    monkeypatch.setattr("tts_orch.doctor.installation.version", version)
    (bad,) = (finding for finding in check_installation() if finding.state == "failure")
    assert said in bad.text
    assert "make install" in bad.text


def test_a_cache_that_cannot_be_written_is_a_failure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path != home)
    (bad,) = (finding for finding in check_installation() if finding.state == "failure")
    assert "set TTS_ORCH_CACHE" in bad.text


# ---- authentication


@pytest.mark.parametrize(
    ("mode", "address", "state"),
    [
        ("", None, "ok"),
        ("", "10.0.0.1:6379", "warning"),
        ("disabled", "10.0.0.1:6379", "ok"),
        ("tokens", None, "failure"),
    ],
)
def test_the_mode_must_be_said_for_clusters(
    mode: str, address: str | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode)
    (finding,) = check_authentication(address)
    assert finding.state == state
    assert "RAY_AUTH_MODE" in finding.text


def test_a_token_must_be_there_and_be_private(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    file = home / ".ray/auth_token"
    (missing,) = check_authentication(None)
    assert missing.state == "failure"
    assert f"{file} holds no token" in missing.text
    file.parent.mkdir()
    file.write_text("a-secret")
    file.chmod(0o644)
    (open_to_all,) = check_authentication(None)
    assert open_to_all.state == "warning"
    assert f"chmod 600 {file}" in open_to_all.text
    file.chmod(stat.S_IRUSR | stat.S_IWUSR)
    (good,) = check_authentication(None)
    assert good.state == "ok"
    assert "a-secret" not in f"{missing}{open_to_all}{good}"


# ---- store


def test_the_default_store_needs_nothing() -> None:
    assert [finding.state for finding in check_store("memory://")] == ["ok"]


@pytest.mark.redis
@pytest.mark.parametrize(
    ("options", "state", "said"),
    [
        ([], "warning", "set maxmemory"),
        ([("maxmemory", "64mb")], "warning", "allkeys-lfu"),
        ([("maxmemory", "64mb"), ("maxmemory-policy", "allkeys-lfu")], "ok", "of 64 MiB, allkeys-lfu"),
    ],
)
def test_a_store_must_be_bounded(options: list[tuple[str, str]], state: str, said: str, tmp_path: Path) -> None:
    server = Server(find_server("redis"), tmp_path, *options)
    try:
        answers, memory = check_store(server.url)
    finally:
        server.kill()
    assert answers.state == "ok"
    assert re.search(r"answers in \d+\.\d ms and can be written", answers.text)
    assert memory.state == state
    assert said in memory.text


def test_a_store_that_is_not_there_is_named() -> None:
    with pytest.raises(StoreError, match=r"redis://127\.0\.0\.1:1 cannot be reached"):
        list(check_store("redis://127.0.0.1:1"))


# ---- target


def model(folder: Path, *files: str) -> Path:
    folder.mkdir()
    for name in files:
        (folder / name).write_text('{"model_type": "llama"}')
    return folder


def test_a_folder_with_a_model_is_well(tmp_path: Path) -> None:
    (finding,) = check_target(str(model(tmp_path / "model", "config.json", "model.safetensors")))
    assert finding.state == "ok"
    assert "llama" in finding.text


@pytest.mark.parametrize(
    ("files", "said"), [(("config.json",), "no weights"), (("model.safetensors",), "no config.json")]
)
def test_half_a_model_is_a_mistake(files: tuple[str, ...], said: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=said):
        list(check_target(str(model(tmp_path / "model", *files))))


@pytest.mark.parametrize("target", ["smollm2", "somebody/some-model"])
def test_what_is_fetched_later_is_a_warning(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (finding,) = check_target(target)
    assert finding.state == "warning"


# ---- trained drafters


def head(folder: Path, **sizes: int | str) -> Path:
    model(folder, "model.safetensors")
    shape = HeadConfig(8, 16, 2, 1, 4, vocab_size=64)
    (folder / "config.json").write_text(json.dumps({**shape.to_json(), **sizes}))
    return folder


def test_a_trained_drafter_says_what_it_is(tmp_path: Path) -> None:
    target = model(tmp_path / "target", "config.json", "model.safetensors")
    (target / "config.json").write_text('{"hidden_size": 8, "text_config": {"hidden_size": 8, "vocab_size": 64}}')
    drafters = {"math": head(tmp_path / "math"), "small": target}
    first, second = check_drafters(drafters, str(target))
    assert (first.state, first.check, second.state) == ("ok", "drafter math", "ok")
    assert first.text.startswith("eagle, 0.0 MiB of weights in")
    assert [finding.state for finding in check_drafters(drafters, "not/fetched")] == ["ok", "ok"]


def test_a_head_of_other_weights_is_refused(tmp_path: Path) -> None:
    target = model(tmp_path / "target", "config.json", "model.safetensors")
    (target / "config.json").write_text('{"hidden_size": 8, "vocab_size": 64}')
    drafters = {"math": head(tmp_path / "math", target_weights_id=weights_id(target))}
    assert [finding.state for finding in check_drafters(drafters, str(target))] == ["ok"]
    (target / "model.safetensors").write_text("trained on")
    (bad,) = check_drafters(drafters, str(target))
    assert bad.state == "failure"
    assert re.search(r"math/config\.json: trained for other weights than those of .*target; give a head", bad.text)
    assert [finding.state for finding in check_drafters(drafters, "not/fetched")] == ["ok"]


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"vocab_size": 63}, r"math/config\.json: vocab_size is 63, but 64 in .*target; give a head trained for it"),
        ({"hidden_size": 9}, r"math/config\.json: hidden_size is 9, but 8 in"),
        ({"depth": 2}, r"math/config\.json: not the configuration of a draft head \(nobody knows depth\)"),
    ],
)
def test_a_head_of_another_target_is_refused(sizes: dict[str, int], said: str, tmp_path: Path) -> None:
    target = model(tmp_path / "target", "config.json", "model.safetensors")
    (target / "config.json").write_text('{"hidden_size": 8, "vocab_size": 64}')
    (bad,) = check_drafters({"math": head(tmp_path / "math", **sizes)}, str(target))
    assert bad.state == "failure"
    assert re.search(said, bad.text)


def test_a_drafter_without_files_is_refused(tmp_path: Path) -> None:
    weightless = head(tmp_path / "weightless")
    (weightless / "model.safetensors").unlink()
    findings = check_drafters({"a": model(tmp_path / "empty"), "b": weightless, "c": tmp_path / "absent"}, "smollm2")
    texts = [finding.text for finding in findings]
    assert re.search("empty/config.json: no readable configuration of a model; train it again", texts[0])
    assert texts[1] == f"drafters: b: no weights in {weightless}; train it again, or give another folder"
    assert "absent/config.json: no readable configuration" in texts[2]


# ---- cluster and command


def test_an_address_where_nothing_listens_is_found_at_once() -> None:
    with pytest.raises(ClusterError, match=r"nothing answers at 127\.0\.0\.1:1 .* start it"):
        list(check_cluster("127.0.0.1:1", "memory://", "smollm2"))


def test_an_error_ends_a_check_and_is_its_last_line() -> None:
    def look() -> Iterator[Finding]:
        yield ok("store", "there")
        raise StoreError("store: it is full; empty it")

    assert list(stopping_at_errors("store", look)) == [ok("store", "there"), failure("store", "it is full; empty it")]


@pytest.mark.parametrize(("last", "exit_code"), [(warning("target", "later"), 0), (failure("target", "gone"), 1)])
def test_the_command_fails_with_any_failure(
    last: Finding, exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def findings(*about: object) -> Iterator[Finding]:
        asked.append(about)
        yield from (ok("python", "3.11"), last)

    monkeypatch.setattr("tts_orch.doctor.checks.check_all", findings)
    monkeypatch.setenv("TTS_ORCH_STORE", "redis://10.0.0.1:6380")
    assert execute(["doctor", "--target", "model", "--drafters", "math=runs/math"]) == exit_code
    captured = capsys.readouterr()
    assert captured.out.splitlines() == ["ok       python: 3.11", f"{last.state:8} target: {last.text}"]
    assert captured.err.count("\n") == exit_code
    assert asked == [("model", {"math": Path("runs/math")}, "redis://10.0.0.1:6380", None)]
