"""Verifiers that share draft statistics through a real server, or would."""

from __future__ import annotations

import asyncio
import itertools
import logging
import pickle
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.store.deltas import learn, sharing_stand
from tests.store.redis_servers import Server, eventually, find_server
from tests.toys_decoder import expected_output, toy_engine
from tts_orch.actors.engine_loading import Engine
from tts_orch.actors.shared_statistics import share_statistics
from tts_orch.actors.target_verifier import LogOpener, TargetVerifierCore
from tts_orch.config import EngineConfig, StoreConfig
from tts_orch.errors import StoreError
from tts_orch.records import DecodeRequest, SamplingParams
from tts_orch.store.base import StatisticsLog
from tts_orch.store.redis_keys import ALL_LOGS, ScopeKeys
from tts_orch.store.replica import Replica

pytestmark = pytest.mark.redis

N_TOKENS = 30


@pytest.fixture
def server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="tts", ignore_cleanup_errors=True) as folder:
        server = Server(find_server("redis"), Path(folder), ("requirepass", "secret"), userinfo=":secret@")
        yield server
        server.kill()


def sharing_engine(config: EngineConfig, log: StatisticsLog | None) -> Engine:
    """Decode like a toy, and tell the others the one thing that it has learned."""
    assert log is not None
    stand = sharing_stand()
    learn(stand, 1)
    return replace(toy_engine(config, None, delay_s=0.01), replica=Replica(stand, log, str(time.monotonic_ns())))


def verifier(open_log: LogOpener) -> TargetVerifierCore:
    """A verifier to which the opener has travelled."""
    core = TargetVerifierCore(EngineConfig(target="toy"), sharing_engine, pickle.loads(pickle.dumps(open_log)))
    core.load()
    return core


def decodes(core: TargetVerifierCore, seeds: Iterator[int]) -> dict[str, float]:
    """Decode one more candidate, as its seed wants it; return the counters."""
    seed = next(seeds)
    request = DecodeRequest(str(seed), np.ones(3, np.int32), 3, seed, SamplingParams(max_new_tokens=N_TOKENS))
    chunks: list[int] = []
    acknowledged, is_finished = 0, False
    while not is_finished:
        acknowledged, found = core.exchange([request], [], acknowledged, 1.0)
        mine = [chunk for chunk in found if chunk.candidate_id == str(seed)]
        chunks += [token for chunk in mine for token in chunk.token_ids.tolist()]
        is_finished = any(chunk.finish_reason for chunk in mine)
    assert chunks == expected_output(seed, 3, N_TOKENS)
    return core.statistics()


def test_what_a_verifier_learns_goes_to_the_server(server: Server) -> None:
    with ExitStack() as opened:
        core = verifier(asyncio.run(share_statistics(StoreConfig(store=server.url), opened)))
        opened.callback(core.close)
        seeds = itertools.count(40)
        eventually(lambda: decodes(core, seeds)["store_sent_batches"] == 1)
        assert core.statistics()["store_failures"] == 0
        assert [ScopeKeys.of(key).scope for key in server.client().keys(ALL_LOGS)] == ["scope"]


def test_server_that_is_absent(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    server.kill()
    place = rf"redis://\*\*\*@127.0.0.1:{server.port} cannot be reached"
    with ExitStack() as opened:
        with pytest.raises(StoreError, match=rf"^store: {place} .*start it, or mend the URL; or .*--store-optional$"):
            asyncio.run(share_statistics(StoreConfig(store=server.url), opened))
        optional = StoreConfig(store=server.url, store_optional=True)
        with caplog.at_level(logging.WARNING):
            core = verifier(asyncio.run(share_statistics(optional, opened)))
        opened.callback(core.close)
        (warning,) = [record.getMessage() for record in caplog.records if record.name.endswith("shared_statistics")]
        assert "until it is there" in warning
        assert "secret" not in warning
        seeds = itertools.count(40)
        eventually(lambda: decodes(core, seeds)["store_failures"] >= 1)
        server.start()
        eventually(lambda: decodes(core, seeds)["store_sent_batches"] == 1, within_s=30)
