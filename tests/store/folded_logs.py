"""Logs of batches whose contents their numbers determine, and what their snapshots must have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.store.deltas import contents, random_delta
from tts_orch.policies.drafting.context_delta import coalesce
from tts_orch.store.redis_log import RedisLog
from tts_orch.store.wire import pack, unpack_all

SCOPE = 'weights/vocabulary/0/["problem", "x"]'


def send(log: RedisLog, sequences: Sequence[int], writer: str = "anna", scope: str = SCOPE) -> None:
    """Append batches whose contents their numbers determine."""
    for sequence in sequences:
        log.append(scope, writer, sequence, pack(random_delta(sequence)))


def total(sequences: Sequence[int]) -> dict[int, Any]:
    return contents(coalesce([random_delta(sequence) for sequence in sequences]))


def folded(log: RedisLog, scope: str = SCOPE) -> dict[int, Any]:
    return contents(unpack_all(log.snapshot(scope).blobs)[0])
