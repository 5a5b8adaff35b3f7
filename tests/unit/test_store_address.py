"""URLs of stores: what they name, and that nobody ever sees their credentials."""

from __future__ import annotations

from pathlib import Path

import pytest

from tts_orch.config import BestOfN, EngineConfig, RunConfig, StoreConfig
from tts_orch.errors import ConfigError
from tts_orch.store_address import StoreAddress, masked


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TTS_ORCH_STORE", "TTS_ORCH_STORE_USERNAME", "TTS_ORCH_STORE_PASSWORD"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://host", StoreAddress("redis", (("host", 6379),))),
        ("redis://host:6380/2", StoreAddress("redis", (("host", 6380),), database=2)),
        ("redis://:p%40ss@host", StoreAddress("redis", (("host", 6379),), password="p@ss")),
        ("redis://me:secret@[::1]:6380", StoreAddress("redis", (("::1", 6380),), username="me", password="secret")),
        (
            "rediss://host?ssl_ca_certs=/ca.crt",
            StoreAddress("rediss", (("host", 6379),), tls={"ssl_ca_certs": "/ca.crt"}),
        ),
        ("unix:///run/store.sock?db=3", StoreAddress("unix", path="/run/store.sock", database=3)),
        ("unix://:secret@/run/store.sock", StoreAddress("unix", path="/run/store.sock", password="secret")),
        (
            "redis+sentinel://:secret@a,b:26380/primary/1?sentinel_password=other",
            StoreAddress(
                "redis+sentinel",
                (("a", 26379), ("b", 26380)),
                service="primary",
                database=1,
                password="secret",
                sentinel_password="other",
            ),
        ),
        ("rediss+cluster://a:7000,b:7001", StoreAddress("rediss+cluster", (("a", 7000), ("b", 7001)))),
    ],
)
def test_what_urls_say(url: str, expected: StoreAddress) -> None:
    assert StoreAddress.parse(url) == expected


def test_credentials_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_ORCH_STORE_USERNAME", "me")
    monkeypatch.setenv("TTS_ORCH_STORE_PASSWORD", "secret")
    for url in ("redis://host", "redis://***@host"):  # the latter is what a run folder has kept
        address = StoreAddress.parse(url)
        assert (address.username, address.password) == ("me", "secret")
    assert StoreAddress.parse("redis://you:other@host").password == "other"


@pytest.mark.parametrize("url", ["unix:///run/user@1000/store.sock", "unix:///run/store.sock?db=1&ssl=@"])
def test_without_credentials_there_is_nothing_to_mask(url: str) -> None:
    assert masked(url) == url


@pytest.mark.parametrize("url", ["redis://me:se/secret@host", "redis://me:se?secret@host", "redis://me:se@secret@host"])
def test_passwords_that_should_have_been_quoted_are_not_shown_either(url: str) -> None:
    assert masked(url) == "redis://***@host"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host", "http://host is none of memory://, redis://"),
        ("redis://", "names no server"),
        ("redis://host:port", "names no server"),
        ("redis://a,b", "names no server"),
        ("redis://host/nowhere", "'nowhere' is not the number of a database"),
        ("redis+cluster://host/1", "'1' is not the number of a database"),
        ("redis+sentinel://host", "does not say which service"),
        ("rediss://host?ssl_ca_cert=x", "did you mean ssl_ca_certs"),
        ("redis://host?ssl_ca_certs=x", "belong to rediss://"),
        ("unix://", "names no socket"),
        ("redis://me:secret@host:port", "[*]{3}@host"),
    ],
)
def test_mistakes_are_one_line_without_credentials(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        StoreConfig(store=url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:secret@host:6380/1",
        "redis://:secret@host",
        "redis://host?password=secret",
        "redis://host?password=x@secret",
        "unix://:secret@/run/store.sock",
        "redis+sentinel://a,b/primary?sentinel_password=secret",
        "rediss://me:sec%40ret@host?ssl_ca_certs=/ca.crt",
    ],
)
def test_credentials_are_never_shown(url: str) -> None:
    address, config = StoreAddress.parse(url), StoreConfig(store=url)
    for text in (str(address), repr(address), masked(url), repr(config), config.model_dump_json()):
        assert "secret" not in text
        assert "sec%40ret" not in text
    assert StoreAddress.parse(masked(url)).hosts == address.hosts


def test_run_folder_gets_no_credentials() -> None:
    config = RunConfig(
        problems=Path("problems.jsonl"),
        engine=EngineConfig(target="toy"),
        method=BestOfN(),
        out=Path("out"),
        store="redis://me:secret@host",
    )
    assert "store: redis://***@host" in config.to_yaml()
    assert "secret" not in config.to_yaml()
    assert config.store == "redis://me:secret@host"


def test_store_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert StoreConfig().store == "memory://"
    monkeypatch.setenv("TTS_ORCH_STORE", "redis://host")
    assert StoreConfig().store == "redis://host"
    assert StoreConfig(store="memory://").store == "memory://"
