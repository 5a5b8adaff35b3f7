"""Hosts on one machine: each a set of namespaces with its own network, processes, home, /tmp and sshd.

They live as long as the process that made them; nothing is made outside their namespaces but one folder.

    laptop 10.77.1.1 --- 10.77.1.2 host 1
           10.77.2.1 --- 10.77.2.2 host 2        and the laptop routes between both
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Host", "Network", "missing_requirements", "network"]

_TOOLS: Final = ("unshare", "nsenter", "setpriv", "ip", "ssh", "ssh-keygen", "rsync", "/usr/sbin/sshd")
_SSHD: Final = """
Port 22
HostKey {keys}/host_key
AuthorizedKeysFile {keys}/id_ed25519.pub
PermitRootLogin yes
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
"""
_INIT: Final = """
set -e
for place in /tmp /run /dev/shm; do mount -t tmpfs tmpfs $place; done
mkdir /run/sshd
mount --bind {folder}/passwd /etc/passwd
hostname {name}
ip link set lo up
{serve}
touch {folder}/up
while :; do sleep 1; done  # the shell reaps what is orphaned
"""


@dataclass(frozen=True)
class Host:
    """A running host.

    Attributes:
        name: its own.
        address: of its end of the wire.
        folder: its files; `home` is its user's.
        init: the process id of its first process, as this machine counts.
    """

    name: str
    address: str
    folder: Path
    init: int

    @property
    def home(self) -> Path:
        """The home of its root user."""
        return self.folder / "home"

    def start(self, command: Sequence[str], environment: Mapping[str, str], cwd: Path) -> subprocess.Popen[str]:
        """Start a command on the host."""
        enter = ["nsenter", "-t", str(self.init), "--net", "--mount", "--pid", "--uts", f"--wd={cwd}", *command]
        pipe = subprocess.PIPE
        return subprocess.Popen(enter, env={**environment, "HOME": str(self.home)}, stdout=pipe, stderr=pipe, text=True)

    def processes(self) -> list[str]:
        """Return the commands that run on the host, its own first process left out."""
        listed = ["nsenter", "-t", str(self.init), "--mount", "--pid", "ps", "-eo", "pid=,args="]
        lines = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.splitlines()
        ours = ("ps -eo", "sleep 1", "sshd")
        running = [line.strip().partition(" ") for line in lines]
        return [command for pid, _, command in running if pid != "1" and not any(own in command for own in ours)]


@dataclass(frozen=True)
class Network:
    """A laptop and the hosts that it reaches by ssh."""

    laptop: Host
    hosts: list[Host]
    private_key: Path


def missing_requirements() -> str:
    """Return why this machine cannot have such hosts, empty if it can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in _TOOLS if not shutil.which(tool)]
    if missing:
        return f"needs {', '.join(missing)}"
    tried = subprocess.run(["unshare", "--net", "--mount", "--pid", "--uts", "--fork", "true"], check=False)
    return "" if tried.returncode == 0 else "may not make namespaces"


@contextmanager
def network(n_hosts: int) -> Iterator[Network]:
    """Run a laptop and hosts until the end of the block."""
    base = Path(tempfile.mkdtemp(prefix="tts-hosts-", dir="/var/tmp"))  # every host has a /tmp of its own
    with ExitStack() as opened:
        opened.callback(shutil.rmtree, base, ignore_errors=True)
        for name in ("host_key", "id_ed25519"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(base / name)], check=True)
        (base / "sshd_config").write_text(_SSHD.format(keys=base))
        laptop = _start(base, "laptop", "10.77.1.1", "", opened)
        _inside(laptop, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        hosts = []
        for number in range(1, n_hosts + 1):
            serve = f"/usr/sbin/sshd -f {base}/sshd_config"
            host = _start(base, f"host{number}", f"10.77.{number}.2", serve, opened)
            _wire(laptop, host, number)
            hosts.append(host)
        yield Network(laptop, hosts, base / "id_ed25519")


def _start(base: Path, name: str, address: str, serve: str, opened: ExitStack) -> Host:
    folder = base / name
    (folder / "home").mkdir(parents=True)
    (folder / "passwd").write_text(_users_with_home(folder / "home"))
    separate = ["--net", "--mount", "--pid", "--uts", "--fork", "--kill-child", "--mount-proc", "--propagation=private"]
    script = _INIT.format(folder=folder, name=name, serve=serve)
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *separate, "bash", "-c", script]
    parent = subprocess.Popen(command, env={"PATH": os.environ["PATH"]})
    opened.callback(_end, parent)
    _wait_for(folder / "up", parent)
    init = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()[0]
    return Host(name, address, folder, int(init))


def _users_with_home(home: Path) -> str:
    """Return this machine's users, root with another home."""
    users = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    return "".join(
        ":".join([*user[:5], str(home) if user[0] == "root" else user[5], *user[6:]]) + "\n" for user in users
    )


def _wire(laptop: Host, host: Host, number: int) -> None:
    """Join a host with the laptop, which is its way to everywhere."""
    wire, gateway = f"wire{number}", f"10.77.{number}.1"
    _inside(laptop, "ip", "link", "add", wire, "type", "veth", "peer", "name", "eth0", "netns", str(host.init))
    _inside(laptop, "ip", "address", "add", f"{gateway}/24", "dev", wire)
    _inside(laptop, "ip", "link", "set", wire, "up")
    _inside(host, "ip", "address", "add", f"{host.address}/24", "dev", "eth0")
    _inside(host, "ip", "link", "set", "eth0", "up")
    _inside(host, "ip", "route", "add", "default", "via", gateway)


def _inside(host: Host, *command: str) -> None:
    subprocess.run(["nsenter", "-t", str(host.init), "--net", *command], check=True)


def _wait_for(file: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{file.parent.name} did not come up")
        time.sleep(0.05)


def _end(parent: subprocess.Popen[bytes]) -> None:
    parent.kill()  # takes the first process with it, and that all others of its host
    parent.wait()
