"""A real Redis server for a benchmark: on a free loopback port, in a folder of its own, stopped by its process id."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import redis

from tests.store.redis_servers import Server
from tts_orch.store.redis_log import RedisLog, RedisLogOpener
from tts_orch.store_address import StoreAddress

__all__ = ["RedisServer", "running"]


class RedisServer(Server):
    """A server as workers see it, and what it costs."""

    def log(self) -> RedisLog:
        """Return the log that a worker would open."""
        return self.opener()()

    def opener(self) -> RedisLogOpener:
        """Return what opens the log in another process."""
        return RedisLogOpener(StoreAddress.parse(self.url), 0)

    def connection(self) -> redis.Redis:
        """Return a client that nothing is hidden from."""
        return redis.Redis(port=self.port, socket_timeout=60)

    @property
    def used_bytes(self) -> int:
        """Memory that it has allocated."""
        return int(self.connection().info("memory")["used_memory"])

    @property
    def cpu_s(self) -> float:
        """Processor time of its main thread so far."""
        cpu = self.connection().info("cpu")
        return float(cpu["used_cpu_user_main_thread"] + cpu["used_cpu_sys_main_thread"])


@contextmanager
def running(program: str, *options: tuple[str, ...]) -> Iterator[RedisServer]:
    """Yield a server, which is gone afterwards with its files.

    Args:
        program: name or path of `redis-server` or `valkey-server`.
        options: such as `("appendonly", "yes")`.
    """
    path = shutil.which(program)
    if path is None:
        raise SystemExit(f"{program}: no such program; install redis-server, or give --server")
    with TemporaryDirectory(prefix="store-") as folder:
        server = RedisServer(path, Path(folder), *options)
        try:
            yield server
        finally:
            server.kill()
