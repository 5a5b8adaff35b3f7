"""A real `ray start --head` with its dashboard, in a home of its own, and jobs that are sent to it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.request import Request, urlopen

from tts_orch.engine.model_cache import cache_folder

__all__ = ["RayHead", "ray_head"]

ROOT = Path(__file__).parents[2]
RAY = str(Path(sys.executable).with_name("ray"))


@dataclass(frozen=True)
class RayHead:
    """A running head: where it takes jobs, and the environment of whoever sends them."""

    address: str
    gcs_address: str
    environment: dict[str, str]

    def submit(self, name: str, arguments: Sequence[str], *, wait: bool = True) -> subprocess.CompletedProcess[str]:
        """Send `python -m tts_orch ARGUMENTS` as a job; its log is the output."""
        options = ["--address", self.address, "--working-dir", str(ROOT), "--submission-id", name]
        options += [] if wait else ["--no-wait"]
        command = ["job", "submit", *options, "--", sys.executable, "-m", "tts_orch", *arguments]
        while "No available agent to submit job" in (sent := self.ray(*command)).stderr:
            time.sleep(1)  # the head has a dashboard already, and still starts what runs jobs
        return sent

    def ray(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Ray's."""
        command = [RAY, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False, timeout=500)

    def job(self, command: str, name: str) -> subprocess.CompletedProcess[str]:
        """Run `ray job COMMAND` for a job."""
        return self.ray("job", command, "--address", self.address, name)

    def exit_code(self, name: str) -> int | None:
        """Return the exit code of a job's own process."""
        program = (
            "import sys; from ray.job_submission import JobSubmissionClient as Client;"
            "print(Client(sys.argv[1]).get_job_info(sys.argv[2]).driver_exit_code)"
        )
        command = [sys.executable, "-c", program, self.address, name]
        said = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout
        return None if said.strip() == "None" else int(said)


@contextmanager
def ray_head(**settings: str) -> Iterator[RayHead]:
    """Run a head of two CPUs until the end of the block; other Rays of this machine are left alone."""
    home = Path(tempfile.mkdtemp(prefix="head", dir="/tmp"))  # unix sockets need a short path
    gcs, dashboard, *others = free_ports(6)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"},
        "HOME": str(home),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": "120",  # machines that run tests are busy
        "TTS_ORCH_CACHE": str(cache_folder()),
        **settings,
    }
    names = ("dashboard-agent-listen-port", "ray-client-server-port", "metrics-export-port", "runtime-env-agent-port")
    ports = [f"--{name}={port}" for name, port in zip(names, others, strict=True)]
    places = [
        "--node-ip-address=127.0.0.1",
        f"--port={gcs}",
        "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}",
    ]
    sizes = ["--num-cpus=2", "--object-store-memory=100000000", f"--temp-dir={home}/ray"]
    dies_with_us = ["setpriv", "--pdeathsig", "TERM"]
    command = [*dies_with_us, RAY, "start", "--head", "--block", *places, *ports, *sizes]
    with (home / "head.log").open("w") as log:
        head = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{dashboard}", head, home / "head.log", environment)
        yield RayHead(f"http://127.0.0.1:{dashboard}", f"127.0.0.1:{gcs}", environment)
    finally:
        head.terminate()
        try:
            head.wait(60)
        finally:
            end_group(head.pid)
            shutil.rmtree(home, ignore_errors=True)


def free_ports(n: int) -> list[int]:
    """Return ports that were free together."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_for(address: str, head: subprocess.Popen[bytes], log: Path, environment: dict[str, str]) -> None:
    """Wait until jobs are taken."""
    token = environment.get("RAY_AUTH_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and head.poll() is None:
        with suppress(OSError), urlopen(Request(f"{address}/api/jobs/", headers=headers), timeout=5):
            return
        time.sleep(0.5)
    raise RuntimeError(f"no Ray at {address}:\n{log.read_text()[-2000:]}")


def end_group(leader: int) -> None:
    """End what the head left behind: all of it is in its session."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return
