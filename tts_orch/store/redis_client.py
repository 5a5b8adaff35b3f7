"""One process's connection to Redis or Valkey: made when it is first used, and every failure is one readable line."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tts_orch.errors import ConfigError, StoreError, first_line
from tts_orch.store_address import StoreAddress

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.cluster import ClusterNode, RedisCluster
    from redis.exceptions import RedisClusterException
    from redis.retry import Retry
    from redis.sentinel import Sentinel
except ModuleNotFoundError:
    raise ConfigError("store: redis-py is not installed; run pip install 'tts-orch[redis]', or use memory://") from None

__all__ = ["RedisClient", "Script"]

_TIMEOUT_S: Final = 2.0  # a thread of its own waits, and has to share its core
_HEALTH_CHECK_S: Final = 15
_OLDEST: Final = (7, 0)
_TLS_FILES: Final = frozenset(("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile"))
_CERTIFICATES: Final = ", its ssl_ca_certs, ssl_certfile and ssl_keyfile too"
_CREDENTIALS: Final = "give them in the URL or in TTS_ORCH_STORE_USERNAME and TTS_ORCH_STORE_PASSWORD"


class Script:
    """A Lua script, sent once to a server and called by its digest from then on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisClient:
    """Sends commands; make one in the process that uses it, for any number of threads.

    Every command may be sent twice when an answer was lost: send only what does no harm twice.

    Args:
        address: which server.
        role: shown by CLIENT LIST.
        timeout_s: seconds that one exchange may take.

    Attributes:
        address: which server.
    """

    def __init__(self, address: StoreAddress, role: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self.address = address
        self._role = role
        self._timeout_s = timeout_s
        self._connection: Any = None  # what a server and a cluster have in common is not typed

    def execute(self, *command: str | bytes | int | float) -> Any:
        """Send a command and return its answer, texts as bytes.

        Raises:
            StoreError: it failed; the message says what to do.
        """
        with self._explained():
            return self._connected().execute_command(*command)

    def execute_all(self, commands: Sequence[Sequence[str | bytes | int | float]]) -> list[Any]:
        """Send commands on keys of one scope in one exchange; not as a transaction. Raises as `execute` does."""
        with self._explained():
            pipeline = self._connected().pipeline(transaction=False)
            for command in commands:
                pipeline.execute_command(*command)
            return list(pipeline.execute())

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[str | bytes | int | float]) -> Any:
        """Run a script on keys of one scope, whether the server remembers it or not. Raises as `execute` does."""
        with self._explained():
            connection = self._connected()
            try:
                return connection.execute_command("EVALSHA", script.digest, len(keys), *keys, *arguments)
            except redis.exceptions.NoScriptError:
                return connection.execute_command("EVAL", script.text, len(keys), *keys, *arguments)

    def keys(self, pattern: str, kind: str | None = None) -> Iterator[bytes]:
        """Find keys on all servers without stopping any; one may come twice. Raises as `execute` does.

        Args:
            pattern: that they match.
            kind: the type of their values, such as `stream`; any if not given.
        """
        with self._explained():
            yield from self._connected().scan_iter(match=pattern, count=1000, _type=kind)

    def check(self) -> None:
        """Make sure that the server is there, lets us in and is not too old.

        Raises:
            StoreError: otherwise.
        """
        with self._explained():
            try:
                server = self._connected().execute_command("INFO", "server", "cluster")
            except redis.exceptions.NoPermissionError:
                self._connected().execute_command("PING")
                return  # a user that may not ask for the version
        version = str(server["redis_version"])
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            raise StoreError(f"store: {self.address} is version {version}; use Redis 7.0 or Valkey 7.2, or later")
        if server.get("cluster_enabled") and not self.address.is_cluster:
            raise StoreError(f"store: {self.address} is a node of a cluster; write redis+cluster:// instead")

    def close(self) -> None:
        """Drop the connections; the next command makes new ones."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _connected(self) -> Any:
        if self._connection is None:
            self._connection = _connect(self.address, self._role, self._timeout_s)
        return self._connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (redis.RedisError, RedisClusterException, OSError) as error:
            if not isinstance(error, redis.ResponseError) or isinstance(error, redis.ReadOnlyError):
                self.close()  # the next command looks for the primary anew
            raise StoreError(f"store: {self.address} {_explain(self.address, error)}") from error


def _connect(address: StoreAddress, role: str, timeout_s: float) -> redis.Redis | RedisCluster:
    options: dict[str, Any] = {
        "username": address.username,
        "password": address.password,
        "client_name": f"tts-orch/{role}",
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "health_check_interval": _HEALTH_CHECK_S,
        "protocol": 2,
        "retry": Retry(NoBackoff(), 1),  # for a connection that has died of age; our callers wait and ask again
        **(_tls(address) if address.is_tls else {}),
    }
    if address.is_cluster:
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        return RedisCluster(startup_nodes=nodes, **options)
    if address.is_sentinel:
        own = {"username": address.sentinel_username, "password": address.sentinel_password}
        sentinel = Sentinel(address.hosts, sentinel_kwargs={**options, **own})
        primary: redis.Redis = sentinel.master_for(address.service, db=address.database, **options)
        return primary
    if address.path:
        return redis.Redis(unix_socket_path=address.path, db=address.database, **options)
    ((host, port),) = address.hosts
    return redis.Redis(host, port, db=address.database, **options)


def _tls(address: StoreAddress) -> dict[str, Any]:
    for name in _TLS_FILES & address.tls.keys():
        if not Path(address.tls[name]).exists():
            raise StoreError(f"store: {address}: {name}={address.tls[name]} is no file on {socket.gethostname()}")
    options: dict[str, Any] = {"ssl": True, **address.tls}
    if "ssl_check_hostname" in options:
        options["ssl_check_hostname"] = options["ssl_check_hostname"].lower() not in ("0", "no", "false")
    return options


def _explain(address: StoreAddress, error: Exception) -> str:
    """Say what is wrong with the server, and what to do."""
    match error:
        case redis.AuthenticationError() | redis.exceptions.NoPermissionError():
            return f"refused the credentials ({first_line(error)}); {_CREDENTIALS}"
        case redis.ReadOnlyError():
            return "is a read-only replica; give its primary, or redis+sentinel://"
        case redis.exceptions.OutOfMemoryError():
            return "is out of memory; raise its maxmemory, or set maxmemory-policy allkeys-lfu"
        case redis.BusyLoadingError():
            return "is still loading its data; wait"
        case redis.ResponseError():
            return f"refused a command: {first_line(error)}"
        case redis.TimeoutError():
            without_tls = ", or speaks no TLS at this port" if address.is_tls else ""
            return f"does not answer in time; see whether it is stopped or overloaded{without_tls}"
    certificates = _CERTIFICATES if address.is_tls else ""
    return f"cannot be reached ({first_line(error)}); start it, or mend the URL{certificates}"
