"""Deltas for tests of the store: what tables hand out after random observations."""

from __future__ import annotations

import numpy as np

from tts_orch.config import DraftingConfig
from tts_orch.policies.drafting.context_delta import ContextDelta, coalesce
from tts_orch.policies.drafting.draft_tree import DraftTree, TrajectoryStart, VerifiedStep
from tts_orch.policies.drafting.ngram_kernels import IDS, SUMS, context_key, entry_span, find_entry
from tts_orch.policies.drafting.ngram_table import NgramTable
from tts_orch.policies.drafting.stand import Stand
from tts_orch.policies.drafting.stand_contexts import contexts_of_text
from tts_orch.policies.drafting.tree_file import default_tree
from tts_orch.records import SamplingParams

__all__ = ["contents", "knowledge", "learn", "random_delta", "sharing_stand"]


def random_delta(seed: int, n_tokens: int = 12, n_ids: int = 30) -> ContextDelta:
    """What a table learns from a random text over 4 tokens, so that contexts of different deltas meet.

    Their sums have up to `n_ids` ids, by default no more than a snapshot keeps.
    """
    generator = np.random.default_rng(seed)
    table = NgramTable(max_entries=1 << 10)
    tokens = generator.integers(0, 4, n_tokens).astype(np.int32)
    laws = generator.dirichlet(np.full(n_ids, 0.3), n_tokens)
    ids = np.argsort(-laws, axis=1)[:, :20].astype(np.int32)
    probs = np.take_along_axis(laws, ids, axis=1).astype(np.float32)
    salts = np.full(n_tokens, table.open("scope"))
    contexts = table.observe(salts, contexts_of_text(tokens, 0, n_tokens), ids, probs, returns_contexts=True)
    return coalesce([] if contexts is None else [contexts])


def contents(delta: ContextDelta) -> dict[int, tuple[int, int, dict[int, int]]]:
    """Order, count and sums by key."""
    ids, sums = delta.ids.tolist(), delta.sums.tolist()
    return {
        int(key): (int(order), int(count), dict(zip(ids[begin:end], sums[begin:end], strict=True)))
        for key, order, count, begin, end in zip(
            delta.key, delta.order, delta.count, delta.start[:-1], delta.start[1:], strict=True
        )
    }


def sharing_stand(scope: str = "scope", vocabulary_size: int = 1 << 31) -> Stand:
    """A drafter that knows a scope and nothing of it."""
    config = DraftingConfig(table_entries=1 << 10)
    stand = Stand(config, default_tree(), vocabulary_size=vocabulary_size, records_deltas=True)
    stand.start(TrajectoryStart("first", np.zeros(1, np.int32), scope, 0, SamplingParams()))
    return stand


def learn(stand: Stand, token: int, scope: str = "scope") -> None:
    """Verify one step after the text `[0]`, under a law that is sure of the token."""
    stand.start(TrajectoryStart("short", np.zeros(1, np.int32), scope, 0, SamplingParams()))
    laws = np.full((1, 1), token, np.int32), np.ones((1, 1), np.float32)
    committed = np.array([token], np.int32)
    stand.observe([VerifiedStep("short", DraftTree.root_only(0), np.zeros(0, np.int32), committed, *laws)])
    stand.close("short")


def knowledge(stand: Stand, scope: str = "scope") -> dict[int, int]:
    """How often each token was learned, here or elsewhere."""
    columns = stand.table.columns
    entry = find_entry(columns, np.uint64(context_key(np.uint64(0), 0, 1)) ^ stand.table.open(scope))
    if entry < 0:
        return {}
    count, start, n_ids = entry_span(columns, entry)
    ids, sums = (columns[column][start : start + n_ids] for column in (IDS, SUMS))
    assert sums.sum() == count * 65535
    return dict(zip(ids.tolist(), (sums // 65535).tolist(), strict=True))
