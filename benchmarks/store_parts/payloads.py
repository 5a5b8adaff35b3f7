"""Deltas as verifiers send them: contexts that come again, each with ten likely ids whose probabilities vary a little."""

from __future__ import annotations

import numpy as np

from tts_orch.policies.drafting.context_delta import PROBABILITY_ONE, ContextDelta
from tts_orch.policies.drafting.ngram_kernels import Keys

__all__ = ["BATCH", "N_IDS", "VOCABULARY_SIZE", "delta_of", "random_keys", "recurring_deltas"]

BATCH = 4096
"""Contexts of a batch: what starts an exchange early."""
N_IDS = 10
VOCABULARY_SIZE = 49_152


def random_keys(n: int, seed: int = 0) -> Keys:
    """Return so many distinct keys, ascending."""
    generator = np.random.default_rng(seed)
    keys = np.unique(generator.integers(1, 2**64 - 1, n + n // 100 + 16, dtype=np.uint64))
    return np.sort(generator.permutation(keys)[:n])


def delta_of(keys: Keys, generator: np.random.Generator) -> ContextDelta:
    """Return one to three observations of each context: ten of its twelve usual ids, which its key determines."""
    n = len(keys)
    usual = (keys[:, None] % VOCABULARY_SIZE + np.arange(0, 12 * 1009, 1009, dtype=np.uint64)) % VOCABULARY_SIZE
    ids = np.sort(generator.permuted(usual, axis=1)[:, :N_IDS], axis=1)
    count = generator.integers(1, 4, n)
    shares = generator.dirichlet(np.full(N_IDS, 0.3), n) * PROBABILITY_ONE * count[:, None]
    return ContextDelta(
        key=keys,
        order=(keys % 4 + 1).astype(np.uint8),
        count=count,
        start=np.arange(0, N_IDS * n + 1, N_IDS),
        ids=ids.astype(np.int32).ravel(),
        sums=np.maximum(shares.astype(np.int64), 1).ravel(),
    )


def recurring_deltas(n: int, n_distinct: int, seed: int = 0) -> list[ContextDelta]:
    """Return `n` batches whose contexts are drawn from so many distinct ones."""
    generator, keys = np.random.default_rng(seed), random_keys(n_distinct)
    return [delta_of(np.sort(generator.choice(keys, BATCH, replace=False)), generator) for _ in range(n)]
