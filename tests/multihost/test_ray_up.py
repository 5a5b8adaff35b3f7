"""`ray up` with the shipped file over two hosts that know each other by ssh and network alone."""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.multihost.hosts import Host, Network, missing_requirements, network
from tts_orch.engine.demo_model import CACHE_NAME
from tts_orch.engine.model_cache import cache_folder

pytestmark = [
    pytest.mark.multihost,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(bool(missing_requirements()), reason=f"hosts of namespaces: {missing_requirements()}"),
    pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server on the PATH"),
    pytest.mark.skipif(not (cache_folder() / CACHE_NAME).is_dir(), reason="no demo model; `make model` fetches it"),
]

ROOT: Final = Path(__file__).parents[2]
VENV: Final = Path(sys.prefix)
DEMO: Final = [
    "run",
    "examples/problems/word_problems.jsonl",
    "--target",
    "smollm2",
    "--method",
    "majority_vote",
    "-n",
    "4",
    "--limit",
    "2",
]
LAW: Final = ["--template", "raw", "--stop", "Q:", "--max-new-tokens", "48", "--kv-memory-gib", "0.5"]
SMALL_NODE: Final = " --num-cpus=1 --object-store-memory=100000000"


@dataclass(frozen=True)
class Launch:
    """A laptop from which a cluster is launched."""

    network: Network
    cluster: Path

    @property
    def head(self) -> Host:
        """The host that becomes the head."""
        return self.network.hosts[0]

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command of the virtual environment, or another, on the laptop."""
        environment = {
            "PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "RAY_AUTH_MODE": "token",
            "RAY_UP_enable_autoscaler_v2": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "TTS_ORCH_CACHE": str(cache_folder()),
        }
        return self.network.laptop.start(command, environment, ROOT)

    def run(self, *command: str, timeout_s: float = 600) -> str:
        """Run a command on the laptop and return what it says."""
        running = self.start(*command)
        try:
            output, errors = running.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        assert running.returncode == 0, f"{command}\n{output[-4000:]}\n{errors[-4000:]}"
        return output


@pytest.fixture
def launch() -> Iterator[Launch]:
    with network(2) as hosts:
        cluster = hosts.laptop.folder / "cluster.yaml"
        cluster.write_text(yaml.safe_dump(settings(hosts)))
        for host in hosts.hosts:
            prepare(host)
        keep_secret(hosts.laptop.home / ".ray/auth_token")
        keep_secret(hosts.laptop.home / ".tts_orch/store_password")
        yield Launch(hosts, cluster)


def settings(hosts: Network) -> dict[str, Any]:
    """Fill the shipped file in; what `pip install` would do is done, since the hosts have no way to the internet."""
    text = (ROOT / "deploy/cluster.local.yaml").read_text()
    head, worker = (host.address for host in hosts.hosts)
    for name, value in {"HEAD_ADDRESS": head, "WORKER_ADDRESS": worker, "USER": "root"}.items():
        text = text.replace(f": {name}", f": {value}").replace(f"[{name}]", f"[{value}]")
    filled: dict[str, Any] = yaml.safe_load(text)
    filled["auth"]["ssh_private_key"] = str(hosts.private_key)
    filled["setup_commands"] = [line for line in filled["setup_commands"] if "pip install" not in line]
    for name in ("head_start_ray_commands", "worker_start_ray_commands"):
        filled[name] = [line + SMALL_NODE for line in filled[name]]
    return filled


def prepare(host: Host) -> None:
    """Give a host what its owner would have installed: the environment and the model."""
    (host.home / "tts_orch").mkdir()
    (host.home / "tts_orch/.venv").symlink_to(VENV)
    (host.home / ".cache").mkdir()
    (host.home / ".cache/tts_orch").symlink_to(cache_folder())


def keep_secret(file: Path) -> None:
    file.parent.mkdir(parents=True)
    file.touch(0o600)
    file.write_text(secrets.token_hex(32))


def test_a_cluster_is_launched_used_and_taken_down(launch: Launch) -> None:
    launch.run("ray", "up", "-y", "--no-config-cache", str(launch.cluster))
    wait_until(lambda: len(live_nodes(launch)) == 2, 240)

    diagnosis = on_head(launch, "tts-orch doctor --address auto")
    assert diagnosis.count("node 10.77.") == 2
    assert f"store: redis://***@{launch.head.address}:6380 answers" in diagnosis
    assert "failure" not in diagnosis

    out = launch.head.folder / "run"
    forward_dashboard(launch)
    log = launch.run(*submit(), "--", "python", "-m", "tts_orch", *DEMO, *LAW, "--workers", "2", "--out", str(out))
    assert "2/2 problems  8 candidates" in log
    assert {worker.partition(":")[0] for worker in workers(out)} == {"host1", "host2"}
    assert f"2 scopes in redis://***@{launch.head.address}:6380" in on_head(launch, "tts-orch store stats")

    fetched = launch.network.laptop.folder / "fetched"
    launch.run("ray", "rsync-down", str(launch.cluster), f"{out}/", f"{fetched}/")
    alone = launch.network.laptop.folder / "alone"
    launch.run("tts-orch", *DEMO, *LAW, "--out", str(alone))
    assert tokens(fetched) == tokens(alone)

    on_head(launch, "~/tts_orch/deploy/node.sh stop")
    launch.run("ray", "down", "-y", str(launch.cluster))
    for host in launch.network.hosts:
        wait_until(lambda host=host: not host.processes(), 240)


def on_head(launch: Launch, command: str) -> str:
    return launch.run("ray", "exec", "--no-config-cache", str(launch.cluster), command)


def forward_dashboard(launch: Launch) -> None:
    """Do what `ray dashboard` does, in the background until the laptop ends."""
    unknown = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    tunnel = f"ssh -f -N -L 8265:127.0.0.1:8265 {unknown} -i {launch.network.private_key} root@{launch.head.address}"
    launch.run("bash", "-c", f"{tunnel} > /dev/null 2>&1")


def live_nodes(launch: Launch) -> list[str]:
    program = "import ray; ray.init('auto', log_to_driver=False); print([n['NodeManagerAddress'] for n in ray.nodes() if n['Alive']])"
    said = on_head(launch, f'python -c "{program}"')
    return [host.address for host in launch.network.hosts if host.address in said]


def submit() -> list[str]:
    return ["ray", "job", "submit", "--address", "http://127.0.0.1:8265", "--working-dir", str(ROOT)]


def workers(out: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((out / "summary.json").read_text())["workers"]
    return found


def tokens(out: Path) -> dict[tuple[Any, ...], list[int]]:
    lines = map(json.loads, (out / "candidates.jsonl").read_text().splitlines())
    return {(line["problem_id"], *line["path"]): line["token_ids"] for line in lines}


def wait_until(happens: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not happens():
        assert time.monotonic() < deadline
        time.sleep(1)
