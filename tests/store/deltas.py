"""Deltas for tests of the store: what tables hand out after random observations."""

from __future__ import annotations

import numpy as np

from tts_orch.policies.drafting.context_delta import ContextDelta
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand import Stand
from tts_orch.records import SamplingParams

__all__ = ["contents", "knowledge", "learn", "random_delta", "sharing_stand"]


def random_delta(seed: int, n_tokens: int = 12, n_ids: int = 30) -> ContextDelta:
    """What a table learns from a random text over 4 tokens, so that contexts of different deltas meet.

    Their sums have up to `n_ids` ids, by default no more than a snapshot keeps.
    """
    generator = np.random.default_rng(seed)
    table = NgramTable(records_deltas=True)
    tokens = generator.integers(0, 4, n_tokens).astype(np.int32)
    laws = generator.dirichlet(np.full(n_ids, 0.3), n_tokens)
    ids = np.argsort(-laws, axis=1)[:, :20].astype(np.int32)
    table.observe(tokens, 0, ids, np.take_along_axis(laws, ids, axis=1).astype(np.float32))
    return table.drain()


def contents(delta: ContextDelta) -> dict[int, tuple[int, int, dict[int, int]]]:
    """Order, count and sums by key."""
    ids, sums = delta.ids.tolist(), delta.sums.tolist()
    return {
        int(key): (int(order), int(count), dict(zip(ids[begin:end], sums[begin:end], strict=True)))
        for key, order, count, begin, end in zip(
            delta.key, delta.order, delta.count, delta.start[:-1], delta.start[1:], strict=True
        )
    }


def sharing_stand(scope: str = "scope") -> Stand:
    """A drafter that knows a scope and nothing of it."""
    stand = Stand(records_deltas=True)
    stand.start(TrajectoryStart("first", np.zeros(1, np.int32), scope, 0, SamplingParams()))
    return stand


def learn(stand: Stand, token: int, scope: str = "scope") -> None:
    """Verify one step after the text `[0]`, under a law that is sure of the token."""
    stand.start(TrajectoryStart("short", np.zeros(1, np.int32), scope, 0, SamplingParams()))
    laws = np.full((1, 1), token, np.int32), np.ones((1, 1), np.float32)
    committed = np.array([token], np.int32)
    stand.observe(VerifiedStep("short", DraftTree.root_only(0), np.zeros(0, np.int32), committed, *laws))
    stand.close("short")


def knowledge(stand: Stand, scope: str = "scope") -> dict[int, int]:
    """How often each token was learned, here or elsewhere."""
    table = stand._tables[scope]
    if table.size == 0:
        return {}
    (_,), (count,), (n_ids,), (ids,), (sums,) = (column[: table.size] for column in table.entries)
    assert sums.sum() == count * 65535
    return dict(zip(ids[:n_ids].tolist(), (sums[:n_ids] // 65535).tolist(), strict=True))
