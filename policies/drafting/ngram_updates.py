"""The compiled writers of an n-gram table: laws counted into all orders, and deltas of other tables merged."""

from __future__ import annotations

import math

import numba
import numpy as np

from tts_orch.policies.drafting.context_delta import ORDERS, PROBABILITY_ONE
from tts_orch.policies.drafting.delta_sums import Contexts
from tts_orch.policies.drafting.ngram_entries import add_context
from tts_orch.policies.drafting.ngram_kernels import Columns, Keys, Longs, context_key, kernel
from tts_orch.policies.drafting.ngram_scopes import is_open, serial_of
from tts_orch.records import FloatArray, IntArray

__all__ = ["are_contexts", "are_laws", "are_open", "merge_contexts", "observe_laws"]


@kernel
def are_laws(ids: IntArray, probabilities: FloatArray, vocabulary_size: int) -> bool:
    """Return whether all ids are below the vocabulary size and all probabilities in [0, 1], but for rounding."""
    for row in range(ids.shape[0]):
        for rank in range(ids.shape[1]):
            if not (0 <= ids[row, rank] < vocabulary_size and 0.0 <= probabilities[row, rank] <= 1.0001):
                return False
    return True


@kernel
def are_open(columns: Columns, salts: Keys) -> bool:
    """Return whether all salts belong to open scopes."""
    n_open = 0
    for salt in salts:
        n_open += is_open(columns, serial_of(salt))
    return n_open == len(salts)


@kernel
def are_contexts(contexts: Contexts, vocabulary_size: int) -> bool:
    """Return whether all ids are below the vocabulary size, and no sum is above what its count allows."""
    key, _, count, start, ids, sums = contexts
    for context in range(len(key)):
        for i in range(start[context], start[context + 1]):
            if not (0 <= ids[i] < vocabulary_size and 0 <= sums[i] <= count[context] * PROBABILITY_ONE):
                return False
    return True


@numba.njit(cache=True)
def observe_laws(
    columns: Columns,
    salts: Keys,
    history: IntArray,
    law_ids: IntArray,
    probabilities: FloatArray,
    returns_contexts: bool,
) -> Contexts:
    """Count law row `i` once into each order of the context `history[i]`, most recent token first, -1 for none.

    Probabilities are quantised to `floor(p * 65535 + 1/2)`, 65535 at most; ids whose share is 0 are left out.

    Returns:
        The observations as columns of a `ContextDelta`, without salts; none unless asked for.
    """
    n_rows, k = law_ids.shape
    n_most = n_rows * ORDERS if returns_contexts else 0
    key, order_of, start = np.empty(n_most, np.uint64), np.empty(n_most, np.uint8), np.zeros(n_most + 1, np.int64)
    flat_ids, flat_sums = np.empty(n_most * k, np.int32), np.empty(n_most * k, np.int64)
    ids, shares = np.empty(k, np.int32), np.empty(k, np.int64)
    n, m = 0, 0
    for row in range(n_rows):
        serial = serial_of(salts[row])
        n_shares = _quantise(law_ids[row], probabilities[row], ids, shares)
        own_ids, own_shares = ids[:n_shares], shares[:n_shares]
        last_key = np.uint64(0)
        for order in range(1, ORDERS + 1):
            if history[row, order - 1] < 0:
                break
            last_key = context_key(last_key, history[row, order - 1], order)
            if returns_contexts:
                flat_ids[m : m + n_shares], flat_sums[m : m + n_shares] = own_ids, own_shares
                m += n_shares
                key[n], order_of[n], start[n + 1] = last_key, order, m
                n += 1
            add_context(columns, last_key ^ salts[row], serial, 1, own_ids, own_shares)
    return key[:n], order_of[:n], np.ones(n, np.int64), start[: n + 1], flat_ids[:m], flat_sums[:m]


@kernel
def _quantise(ids: IntArray, probabilities: FloatArray, kept: IntArray, shares: Longs) -> int:
    """Write the ids of positive share and their shares; return how many they are."""
    n = 0
    for rank in range(len(ids)):
        share = math.floor(np.float64(probabilities[rank]) * PROBABILITY_ONE + 0.5)
        if share > 0:
            kept[n], shares[n] = ids[rank], min(share, PROBABILITY_ONE)
            n += 1
    return n


@kernel
def merge_contexts(columns: Columns, salt: np.uint64, contexts: Contexts) -> None:
    """Add the contexts of a delta to a scope."""
    key, _, count, start, ids, sums = contexts
    for i in range(len(key)):
        own = slice(start[i], start[i + 1])
        add_context(columns, key[i] ^ salt, serial_of(salt), count[i], ids[own], sums[own])
