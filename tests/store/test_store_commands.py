"""`tts-orch store` on a real server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.deltas import random_delta
from tests.store.redis_servers import Server, find_server
from tts_orch.cli import context_table, execute
from tts_orch.policies.drafting.context_delta import coalesce
from tts_orch.store.redis_folding import fold_log
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.wire import pack

pytestmark = pytest.mark.redis

SCOPES = ['weights/letters/0/["problem", "[red]"]', 'weights/letters/0/["run"]', 'weights/other/0/["run"]']


@pytest.fixture
def server_program() -> str:
    """One kind of server is enough here."""
    return find_server("redis")


@pytest.fixture(autouse=True)
def _filled(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_ORCH_STORE", server.url)
    monkeypatch.setenv("COLUMNS", "80")
    log = RedisLog(server.client(), ttl_s=7200)
    for scope in SCOPES:
        for sequence in range(3):
            log.append(scope, "anna", sequence, pack(random_delta(sequence)))
    fold_log(server.client(), ScopeKeys(SCOPES[1]), keeps_generation=False)


def say(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that succeeds and return what it prints."""
    code = execute(["store", *arguments])
    captured = capsys.readouterr()
    assert (code, captured.err) == (0, "")
    return captured.out


def rows(text: str) -> dict[str, list[str]]:
    """The numbers of each scope in the table of `store stats`."""
    lines = [line.rstrip() for line in text.splitlines()]
    found = {scope: line for scope in SCOPES for line in lines if line.endswith(f"  {scope}")}
    return {scope: line.removesuffix(scope).split() for scope, line in found.items()}


def test_stats_count_what_is_folded_and_what_is_not(capsys: pytest.CaptureFixture[str], server: Server) -> None:
    text = say(capsys, "stats")
    total = coalesce([random_delta(sequence) for sequence in range(3)])
    numbers = rows(text)
    assert list(numbers) == SCOPES
    for scope, batches in zip(SCOPES, ("3", "1", "3"), strict=True):
        assert numbers[scope][:3] == [str(total.n_contexts), str(total.count.sum()), batches]
        assert numbers[scope][-1] == "2.0"  # hours left
    assert f"3 scopes in {server.url}" in text


def test_top_contexts_are_text_where_the_tokenizer_is_the_scopes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = context_table.Texts("letters", lambda ids: "".join("abcdefghijklmnopqrstuvwxyz012345"[i] for i in ids))
    monkeypatch.setattr("tts_orch.cli.store_contents.texts_of", lambda target: texts)
    text = say(capsys, "stats", "--scope", '["run"]', "--top", "2", "--target", "toy")
    tables = text.split("times  context")
    known, other = tables[1:]
    total = coalesce([random_delta(sequence) for sequence in range(3)])
    most = max(zip(total.count.tolist(), total.order.tolist(), strict=True))
    assert known.splitlines()[1].startswith(f"{most[0]} ")
    assert "'" in known.splitlines()[1]
    assert "'" not in other
    assert sum(line[:1].isdigit() for line in known.splitlines()) == 8  # two of each length
    assert "[red]" not in text


def test_export_import_and_clear(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = {scope: numbers[:2] for scope, numbers in rows(say(capsys, "stats")).items()}
    file = str(tmp_path / "statistics.zip")
    assert "contexts of 3 scopes" in say(capsys, "export", file)
    assert "0 contexts of 0 scopes added; 3 scopes have some" in say(capsys, "import", file)
    assert "1 scopes would be dropped" in say(capsys, "clear", "--scope", "other")
    assert len(rows(say(capsys, "stats"))) == 3
    assert say(capsys, "clear", "--scope", "other", "--yes").splitlines() == [SCOPES[2], "1 scopes dropped"]
    assert "2 scopes dropped" in say(capsys, "clear", "--all", "--yes")
    assert "0 scopes in" in say(capsys, "stats")
    assert "contexts of 1 scopes added" in say(capsys, "import", file, "--scope", "other", "--ttl", "3600")
    assert rows(say(capsys, "stats"))[SCOPES[2]][-1] == "1.0"
    assert "contexts of 2 scopes added; 1 scopes have some" in say(capsys, "import", file)
    assert {scope: numbers[:2] for scope, numbers in rows(say(capsys, "stats")).items()} == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["clear"], 2, "give either --scope TEXT or --all"),
        (["clear", "--all", "--scope", "x"], 2, "give either --scope TEXT or --all"),
        (["stats", "--store", "memory://"], 2, "memory:// ends with its run; give --store redis://host"),
        (["stats", "--store", "redis://:secret@127.0.0.1:1"], 1, "redis://***@127.0.0.1:1 cannot be reached"),
        (["import", "nowhere"], 2, "nowhere: No such file or directory"),
        (["export", "no/where"], 2, "there is no folder no"),
    ],
)
def test_mistakes_are_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str) -> None:
    assert execute(["store", *arguments]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert "secret" not in error


def test_keys_of_strangers_do_no_harm(capsys: pytest.CaptureFixture[str], server: Server) -> None:
    client = server.client()
    client.execute("SET", b"tts:1:{\xff}:log", "a text")
    client.execute("SET", "tts:2:{scope}:log", "of another version")
    client.execute("SET", "another program", "x")
    assert "4 scopes in" in say(capsys, "stats")
    assert "4 scopes dropped" in say(capsys, "clear", "--all", "--yes")
