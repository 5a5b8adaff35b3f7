"""Where a store of draft statistics is: a URL, read, checked, and never shown with its credentials.

    redis://[user:password@]host[:port][/database]           one server
    rediss://...?ssl_ca_certs=FILE&ssl_certfile=FILE&ssl_keyfile=FILE
    unix://[user:password@]/path/to/socket[?db=0]
    redis+sentinel://host[:port],host[:port],.../service[/database]
    redis+cluster://host[:port],host[:port],...
    rediss+sentinel://...  rediss+cluster://...              the same in TLS

What the URL says nothing of comes from TTS_ORCH_STORE_USERNAME and TTS_ORCH_STORE_PASSWORD.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from tts_orch.errors import ConfigError

__all__ = ["MEMORY_STORE", "StoreAddress", "masked"]

MEMORY_STORE: Final = "memory://"
"""The store that needs no server."""
_MASK: Final = "***"
_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
_REDIS_PORT: Final = 6379
_SENTINEL_PORT: Final = 26379
_TLS_OPTIONS: Final = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")
_OPTIONS: Final = ("db", "username", "password", "sentinel_username", "sentinel_password", *_TLS_OPTIONS)


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A Redis or Valkey server, or several that are one store; its text is its URL without credentials.

    Attributes:
        scheme: one of those above.
        hosts: `(host, port)` of the server, of the sentinels, or of some nodes of the cluster; empty for a socket.
        path: the socket, else empty.
        service: the name that sentinels know the primary by, else empty.
        database: number of the database.
        username: None for the default user.
        password: None where none is needed.
        sentinel_username: credentials of the sentinels themselves.
        sentinel_password: the same.
        tls: options of redis-py, by name; empty values are left out.
    """

    scheme: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    database: int = 0
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = field(default=None, repr=False)
    sentinel_password: str | None = field(default=None, repr=False)
    tls: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, url: str) -> StoreAddress:
        """Read a URL, with credentials from the environment where it has none.

        Raises:
            ConfigError: it names no store.
        """
        parts = urlsplit(url)
        if parts.scheme not in _SCHEMES:
            raise ConfigError(f"store: {masked(url)} is none of memory://, {', '.join(f'{s}://' for s in _SCHEMES)}")
        username, password, hosts = _authority(parts)
        options = _options(url, parts)
        service, database = _place(url, parts, options)
        return cls(
            scheme=parts.scheme,
            hosts=() if parts.scheme == "unix" else _hosts(url, parts.scheme, hosts),
            path=_socket(url, parts) if parts.scheme == "unix" else "",
            service=service,
            database=database,
            username=username or options.get("username") or os.environ.get("TTS_ORCH_STORE_USERNAME"),
            password=password or options.get("password") or os.environ.get("TTS_ORCH_STORE_PASSWORD"),
            sentinel_username=options.get("sentinel_username"),
            sentinel_password=options.get("sentinel_password"),
            tls={name: value for name, value in options.items() if name in _TLS_OPTIONS},
        )

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme.startswith("rediss")

    @property
    def is_cluster(self) -> bool:
        """Whether the hosts are nodes of a Redis Cluster."""
        return self.scheme.endswith("+cluster")

    @property
    def is_sentinel(self) -> bool:
        """Whether the hosts are sentinels."""
        return self.scheme.endswith("+sentinel")

    def __str__(self) -> str:
        mask = f"{_MASK}@" if self.username or self.password else ""
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        service = f"/{self.service}" if self.service else ""
        database = f"/{self.database}" if self.database else ""
        return f"{self.scheme}://{mask}{hosts}{self.path}{service}{database}"


def masked(url: str) -> str:
    """Return a URL without its credentials; what is masked is looked for in the environment when it is read again."""
    scheme, mark, rest = url.partition("://")
    place, _, query = rest.partition("?")
    kept = "&".join(option for option in query.split("&") if "password" not in option.partition("=")[0])
    rest = f"{place}?{kept}" if kept else place
    userinfo, _, place = rest.rpartition("@")  # the last one: a password that should have been quoted may have others
    return f"{scheme}{mark}{_MASK}@{place}" if userinfo and not rest.startswith("/") else f"{scheme}{mark}{rest}"


def _authority(parts: SplitResult) -> tuple[str | None, str | None, str]:
    """Split user, password and hosts."""
    userinfo, _, hosts = parts.netloc.rpartition("@")
    if userinfo == _MASK:
        return None, None, hosts
    username, _, password = userinfo.partition(":")
    return unquote(username) or None, unquote(password) or None, hosts


def _socket(url: str, parts: SplitResult) -> str:
    if parts.path in ("", "/"):
        raise ConfigError(f"store: {masked(url)} names no socket; write unix:///path/to/socket")
    return unquote(parts.path)


def _hosts(url: str, scheme: str, text: str) -> tuple[tuple[str, int], ...]:
    default = _SENTINEL_PORT if scheme.endswith("+sentinel") else _REDIS_PORT
    try:
        places = [urlsplit(f"//{part}") for part in text.split(",")]
        hosts = tuple((place.hostname or "", place.port or default) for place in places)
    except ValueError:
        hosts = (("", 0),)
    if not all(host for host, _ in hosts) or (len(hosts) > 1 and "+" not in scheme):
        raise ConfigError(f"store: {masked(url)} names no server; write {scheme}://host:port")
    return hosts


def _options(url: str, parts: SplitResult) -> dict[str, str]:
    options = {name: value for name, value in parse_qsl(parts.query) if value}
    for name in options:
        if name not in _OPTIONS or (name in _TLS_OPTIONS and not parts.scheme.startswith("rediss")):
            near = difflib.get_close_matches(name, _OPTIONS, n=1)
            hint = f"did you mean {near[0]}?" if near and near[0] != name else "ssl_* belong to rediss://"
            raise ConfigError(f"store: {masked(url)}: unknown option {name}; {hint}")
    return options


def _place(url: str, parts: SplitResult, options: Mapping[str, str]) -> tuple[str, int]:
    """Return the service and the number of the database."""
    path = [] if parts.scheme == "unix" else [unquote(part) for part in parts.path.split("/") if part]
    service = path.pop(0) if path and parts.scheme.endswith("+sentinel") else ""
    database = options.get("db") or (path.pop(0) if path else "0")
    if parts.scheme.endswith("+sentinel") and not service:
        raise ConfigError(f"store: {masked(url)} does not say which service; write {parts.scheme}://host:port/SERVICE")
    if path or not database.isdecimal() or (parts.scheme.endswith("+cluster") and int(database)):
        raise ConfigError(f"store: {masked(url)}: {database!r} is not the number of a database; leave it out")
    return service, int(database)
