"""What is shipped for clusters: read by Ray itself, as `ray up` reads it, and held together."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import ValidationError
from ray.autoscaler._private.util import prepare_config, validate_config

ROOT = Path(__file__).parents[2]
CLUSTERS = ("cluster.yaml", "deploy/cluster.local.yaml")


def settings_of(cluster: str) -> dict[str, Any]:
    settings: dict[str, Any] = yaml.safe_load((ROOT / cluster).read_text())
    return settings


def all_commands(settings: dict[str, Any]) -> list[str]:
    return [line for name, lines in settings.items() if name.endswith("_commands") for line in lines]


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_ray_accepts_the_cluster_file(cluster: str) -> None:
    validate_config(prepare_config(settings_of(cluster)))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_ray_would_notice_a_misspelt_key(cluster: str) -> None:
    settings = settings_of(cluster)
    settings["setup_comands"] = settings.pop("setup_commands")
    with pytest.raises(ValidationError, match="setup_comands"):
        validate_config(prepare_config(settings))


def test_gpu_workers_scale_from_zero_and_the_head_has_none() -> None:
    settings = settings_of("cluster.yaml")
    head, gpu = (settings["available_node_types"][name] for name in ("head", "gpu"))
    assert settings["head_node_type"] == "head"
    assert "GPU" not in head["resources"]
    assert gpu["min_workers"] == 0
    assert 0 < gpu["max_workers"] <= settings["max_workers"]
    assert gpu["resources"]["GPU"] == 1


def test_the_first_line_of_the_local_file_names_the_variable_that_it_needs() -> None:
    first, *_ = (ROOT / "deploy/cluster.local.yaml").read_text().splitlines()
    assert first.startswith("# RAY_UP_enable_autoscaler_v2=0 ray up deploy/cluster.local.yaml")


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_secrets_reach_every_node_and_stand_in_no_file(cluster: str) -> None:
    settings = settings_of(cluster)
    for secret in ("~/.ray/auth_token", "~/.tts_orch/store_password"):
        assert settings["file_mounts"][secret] == secret
    assert "requirepass" not in (ROOT / "deploy/redis.conf").read_text()
    assert not any("password" in command for command in all_commands(settings))


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_both_files_start_their_nodes_by_the_same_script(cluster: str) -> None:
    settings = settings_of(cluster)
    assert settings["head_start_ray_commands"] == [
        "~/tts_orch/deploy/node.sh head --autoscaling-config=~/ray_bootstrap_config.yaml"
    ]
    assert settings["worker_start_ray_commands"] == ["~/tts_orch/deploy/node.sh worker $RAY_HEAD_IP"]


def test_whatever_starts_ray_says_how_it_authenticates() -> None:
    starters = [
        path for path in shipped() if re.search(r"^\W*ray (start|up|job submit)\b", path.read_text(), re.MULTILINE)
    ]
    assert ROOT / "deploy/node.sh" in starters
    assert [path.name for path in starters if "RAY_AUTH_MODE" not in path.read_text()] == []


def shipped() -> list[Path]:
    names = ("Makefile", "README.md", "cluster.yaml", "deploy/*", "docs/*.md", "tests/**/*.py", "tests/**/*.sh")
    return [path for name in names for path in sorted(ROOT.glob(name)) if path.is_file()]


def test_the_store_is_bounded_evicts_and_leaves_rays_port_alone() -> None:
    lines = (ROOT / "deploy/redis.conf").read_text().splitlines()
    options = dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))
    assert options["port"] == "6380"
    assert options["maxmemory-policy"] == "allkeys-lfu"
    assert options["maxmemory"]
    assert options["protected-mode"] == "yes"


def test_the_pin_of_torch_does_not_reach_nodes_with_a_gpu() -> None:
    pins = {name: set(pinned(name)) for name in ("constraints.txt", "deploy/constraints.gpu.txt")}
    (torch,) = pins["constraints.txt"] - pins["deploy/constraints.gpu.txt"]
    assert torch.startswith("torch==")
    assert pins["deploy/constraints.gpu.txt"] < pins["constraints.txt"]


def pinned(name: str) -> list[str]:
    return [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines() if "==" in line]


def test_the_script_is_sound_and_explains_itself() -> None:
    script = ROOT / "deploy/node.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    explained = subprocess.run([str(script)], capture_output=True, text=True, check=False)
    assert explained.returncode == 2
    assert "deploy/node.sh worker HEAD_ADDRESS" in explained.stdout


@pytest.fixture
def lone_script(tmp_path: Path) -> Path:
    """The script in a checkout of its own, beside a Ray and a Redis that do nothing."""
    script, programs = tmp_path / "deploy/node.sh", tmp_path / ".venv/bin"
    for folder in (script.parent, programs):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "deploy/node.sh", script)
    for name in ("ray", "redis-server"):
        (programs / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/called\n")
        (programs / name).chmod(0o755)
    return script


def call(script: Path, order: str) -> subprocess.CompletedProcess[str]:
    environment = {"HOME": str(script.parents[1]), "PATH": "/usr/bin:/bin"}
    return subprocess.run([str(script), order], capture_output=True, text=True, check=False, env=environment)


def complaint_of(script: Path) -> str:
    """What it says as it refuses to start a head."""
    failed = call(script, "head")
    assert (failed.returncode, failed.stderr.count("\n")) == (1, 1)
    return failed.stderr


def test_the_script_starts_nothing_without_a_password(lone_script: Path) -> None:
    assert "store_password is missing; make it" in complaint_of(lone_script)


def test_the_script_starts_nothing_where_rays_port_is_taken(lone_script: Path, tmp_path: Path) -> None:
    (tmp_path / ".tts_orch").mkdir()
    (tmp_path / ".tts_orch/store_password").write_text("secret")
    with socket.socket() as system_redis:
        system_redis.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody else has it, which does as well
            system_redis.bind(("127.0.0.1", 6379))
            system_redis.listen()
        assert "systemctl disable --now redis-server" in complaint_of(lone_script)
    assert (tmp_path / "called").read_text() == "ray\n"  # `ray stop`: our own head may have the port


def test_the_script_stops_no_stranger_that_has_the_number_of_a_dead_server(lone_script: Path, tmp_path: Path) -> None:
    (tmp_path / ".tts_orch").mkdir()
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / ".tts_orch/store.pid").write_text(f"{stranger.pid}\n")
        stopped = call(lone_script, "stop")
        is_alive = stranger.poll() is None
        stranger.kill()
    assert (stopped.returncode, is_alive) == (0, True)
