"""Servers for tests of the store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.store.deltas import knowledge, learn, sharing_stand
from tests.store.redis_servers import Server, find_server
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_log import RedisLog


class ServerStarter(Protocol):
    """Starts servers that end with the test; the arguments are those of `Server`."""

    def __call__(self, *options: tuple[str, ...], userinfo: str = "", tls: str = "") -> Server: ...


@pytest.fixture(scope="session")
def compiled_kernels() -> None:
    """Compile what replicas call, which takes longer than any exchange and would be counted as waiting."""
    stand = sharing_stand()
    learn(stand, 1)
    for delta in stand.drain():
        stand.merge(delta)
        stand.reload(delta)
    assert knowledge(stand) == {1: 1}


@pytest.fixture
def server_folder() -> Iterator[Path]:
    """A folder whose path is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="tts", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(params=["redis", "valkey"])
def server_program(request: pytest.FixtureRequest) -> str:
    """Each kind of server in turn."""
    return find_server(request.param)


@pytest.fixture
def start_server(server_program: str, server_folder: Path) -> Iterator[ServerStarter]:
    """Start servers of either kind."""
    with ExitStack() as started:

        def start(*options: tuple[str, ...], userinfo: str = "", tls: str = "") -> Server:
            server = Server(server_program, server_folder, *options, userinfo=userinfo, tls=tls)
            started.callback(server.kill)
            return server

        yield start


@pytest.fixture
def server(start_server: ServerStarter) -> Server:
    """A server of either kind, with nothing in it."""
    return start_server()


@pytest.fixture
def client(server: Server) -> RedisClient:
    """A connection to the server."""
    return server.client()


@pytest.fixture
def log(client: RedisClient) -> RedisLog:
    """The log in the server, whose scopes stay."""
    return RedisLog(client, ttl_s=0)
