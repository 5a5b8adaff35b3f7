"""Which runs may begin with statistics of others, and with which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tts_orch.config import BestOfN, DraftingConfig, EngineConfig, RunConfig, StoreConfig
from tts_orch.errors import ConfigError
from tts_orch.orchestrator import Orchestrator
from tts_orch.policies.drafting.scopes import ScopeNames


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "statistics.zip"
    path.write_bytes(b"not read yet")
    return path


def run(file: Path, **engine: Any) -> RunConfig:
    return RunConfig(
        problems=Path("p.jsonl"),
        out=Path("out"),
        engine=EngineConfig(target="t", **engine),
        method=BestOfN(),
        warm_start=file,
    )


def test_path_is_absolute_and_must_be_a_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    assert run(Path(file.name)).warm_start == file.resolve()
    with pytest.raises(
        ConfigError, match=r"^warm_start: .*nowhere.* is no file; make one with `tts-orch store export`"
    ):
        StoreConfig(warm_start=file.parent / "nowhere")


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        ({"drafter": "prompt_lookup"}, "warm_start: only stand reads it, not prompt_lookup"),
        ({"statistics_scope": "request"}, "warm_start: statistics_scope request shares nothing"),
    ],
)
def test_file_that_nobody_would_read_is_refused(file: Path, engine: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(file, **engine)
    with pytest.raises(ConfigError, match=message):
        Orchestrator("t", store=StoreConfig(warm_start=file), **engine)


def test_file_is_read_before_anything_is_loaded(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"statistics.zip: not a file of draft statistics"):
        Orchestrator("there is no such target", store=StoreConfig(warm_start=file))


def test_one_worker_wants_a_store_where_statistics_come_from_elsewhere(file: Path) -> None:
    assert not StoreConfig(store="memory://").reaches_beyond_run
    assert StoreConfig(store="memory://", warm_start=file).reaches_beyond_run
    assert not StoreConfig(store="memory://", warm_start=file).outlives_run


def test_scopes_of_other_models_or_tokenizers_are_not_owned() -> None:
    names = ScopeNames(DraftingConfig(), "weights", "tokenizer")
    assert names.owns('weights/tokenizer/0/["run"]')
    assert names.owns('weights/tokenizer/another/["run"]')
    assert not names.owns('weights/tokenizer2/0/["run"]')
    assert not names.owns('weights2/tokenizer/0/["run"]')
