"""A run that begins with statistics of yesterday: its drafters know them, and its tokens are the same."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.store.deltas import random_delta, sharing_stand
from tests.store.redis_servers import eventually
from tests.toys_decoder import expected_output, toy_engine
from tts_orch.actors.engine_loading import Engine
from tts_orch.config import EngineConfig, LawConfig, MajorityVote, StoreConfig
from tts_orch.errors import ConfigError
from tts_orch.orchestrator import Orchestrator
from tts_orch.records import Problem
from tts_orch.seeds import trajectory_seed
from tts_orch.store.base import StatisticsLog
from tts_orch.store.memory import MemoryStore
from tts_orch.store.replica import Replica
from tts_orch.store.statistics_file import export_statistics
from tts_orch.store.wire import pack

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("ray_session")]

OWN_SCOPE = 'toy/characters/0/["run"]'
LAW = LawConfig(max_new_tokens=40)
TRUTH = [expected_output(trajectory_seed(3, "p", [i]), len("seven"), LAW.max_new_tokens) for i in range(6)]


def sharing_engine(config: EngineConfig, log: StatisticsLog | None) -> Engine:
    """Decode like a toy, beside a drafter that wants to know of one scope."""
    assert log is not None
    replica = Replica(sharing_stand(OWN_SCOPE), log, str(time.monotonic_ns()))
    return replace(toy_engine(config, None, delay_s=0.02), replica=replica)


def file_of(path: Path, scopes: list[str]) -> StoreConfig:
    yesterday = MemoryStore()
    for scope in scopes:
        yesterday.append(scope, "writer", 0, pack(random_delta(0)))
    export_statistics(yesterday, scopes, path)
    return StoreConfig(store="memory://", warm_start=path)


def test_drafters_know_what_was_known_and_tokens_are_the_same(tmp_path: Path) -> None:
    store = file_of(tmp_path / "statistics.zip", [OWN_SCOPE, 'other/characters/0/["run"]'])
    with Orchestrator("toy", workers=1, store=store, statistics_scope="run", make_engine=sharing_engine) as session:

        def knows_everything() -> bool:
            result = session.search(Problem("p", "seven"), MajorityVote(n=6), seed=3, law=LAW)
            assert [list(candidate.token_ids) for candidate in result.candidates] == TRUTH
            return session.statistics()["store_merged_contexts"] == random_delta(0).n_contexts

        eventually(knows_everything, within_s=30)


def test_file_of_other_models_only_is_refused(tmp_path: Path) -> None:
    store = file_of(tmp_path / "statistics.zip", ['other/characters/0/["run"]'])
    with pytest.raises(ConfigError, match=r"^warm_start: .*statistics.zip has no statistics of this target"):
        Orchestrator("toy", workers=1, store=store, make_engine=sharing_engine)
