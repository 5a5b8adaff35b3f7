"""Engines with trained drafters, from their settings alone: the tokens of plain decoding, and STAND shared as ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.exactness.decoding import decode, request
from tests.neural_toys import toy_facts, toy_head
from tests.toys import save_toy
from tts_orch.actors.engine_loading import Engine, load_engine
from tts_orch.config import EngineConfig
from tts_orch.drafters.checkpoint import save_head
from tts_orch.drafters.loading import pool_loader
from tts_orch.errors import ConfigError
from tts_orch.policies.drafting.member_counts import member_shares
from tts_orch.records import SamplingParams
from tts_orch.store.base import StatisticsLog
from tts_orch.store.memory import MemoryStore

PROMPT = np.arange(5, 25, dtype=np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_toy(tmp_path_factory.mktemp("toy"))


@pytest.fixture(scope="module")
def drafters(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A head of random weights, and the target itself as a small language model."""
    head = tmp_path_factory.mktemp("head")
    save_head(head, toy_head(replace(toy_facts(torch.float32), weights_id="")))
    return {"head": head, "model": folder}


def engine(folder: Path, log: StatisticsLog | None = None, **settings: Any) -> Engine:
    return load_engine(EngineConfig(target=str(folder), kv_memory_gib=0.02, threads=1, **settings), log)


def tokens(engine: Engine) -> list[list[int]]:
    law = SamplingParams(temperature=0.7, max_new_tokens=24)
    decoded = decode(engine.decoder, [request(str(i), PROMPT, law) for i in range(3)])  # type: ignore[arg-type]
    return [outcome.tokens for outcome in decoded.values()]


@pytest.mark.parametrize("settings", [{"drafter": "neural"}, {"drafter": "stand", "routing": "merged"}], ids=str)
def test_trained_drafters_change_no_token(settings: dict[str, Any], folder: Path, drafters: dict[str, Path]) -> None:
    drafted = engine(folder, drafters=drafters, node_budget=False, max_nodes=6, **settings)
    assert tokens(drafted) == tokens(engine(folder, drafter="none"))
    counters = drafted.decoder.statistics()
    shares = member_shares(counters)
    assert sum(share["accepted"] for share in shares.values()) == counters["accepted_nodes"] > 0
    assert shares["model"]["accepted"] > 0


def test_stand_shares_its_statistics_wherever_it_is(folder: Path, drafters: dict[str, Path]) -> None:
    log = MemoryStore()
    assert engine(folder, log, drafters=drafters).replica is not None
    assert engine(folder, log).replica is not None
    assert engine(folder, log, drafter="neural", drafters=drafters).replica is None
    assert engine(folder, drafters=drafters).replica is None


def test_a_drafter_of_another_target_is_one_line(folder: Path, tmp_path: Path) -> None:
    save_head(tmp_path, toy_head(toy_facts(torch.float32)))
    with pytest.raises(ConfigError, match="trained for a target with other weights"):
        engine(folder, drafters={"head": tmp_path})


def test_a_pool_has_compiled_what_its_first_draft_calls(
    folder: Path, drafters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = EngineConfig(target=str(folder), drafter="neural", drafters=drafters, kv_memory_gib=0.02, threads=1)
    warmed: list[EngineConfig] = []
    monkeypatch.setattr("tts_orch.policies.drafting.warm_up.warm_up", warmed.append)
    load = pool_loader(config)
    assert warmed == [config]
    assert load(drafters["head"]).feature_layers == (-1,)
