"""The draft statistics of one scope: which tokens the target's raw law puts after each context of 1 to 4 tokens.

An entry counts observations of one context and sums their quantised laws over up to 32 ids; the law it exposes is the
mean over its 10 largest sums. Integers make the sums independent of the order in which workers' contributions arrive.

Source: STAND, arXiv 2506.04708, section 3 (averaged n-gram laws, back-off); integer sums and 32 kept ids are ours.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE, ContextDelta, coalesce
from tts_orch.policies.drafting.ngram_kernels import (
    Entries,
    add_contexts,
    are_laws,
    context_key,
    contexts_of_laws,
    fill_index,
    find_entry,
)
from tts_orch.records import FloatArray, IntArray

__all__ = ["EXPOSED", "NgramTable"]

EXPOSED = 10
"""Ids of an entry that drafts are drawn from."""
_FIRST_CAPACITY = 1024


class NgramTable:
    """A hash table that grows by doubling; a full one forgets the half of its entries that was observed least.

    Args:
        max_entries: contexts it holds at most, at least 16; about 420 bytes each. Among entries observed equally often
            the older ones are forgotten first.
        vocabulary_size: token ids must be below it.
        records_deltas: whether observations are kept for `drain`.

    Attributes:
        n_undrained: recorded observations that were not drained yet, one a context each time.
    """

    def __init__(
        self, *, max_entries: int = 1 << 18, vocabulary_size: int = 1 << 31, records_deltas: bool = False
    ) -> None:
        if max_entries < 16:
            raise ValueError(f"max_entries: {max_entries} is too few; give 16 or more")
        self._max_entries = max_entries
        self._vocabulary_size = vocabulary_size
        self._records_deltas = records_deltas
        self._undrained: list[ContextDelta] = []
        self.n_undrained = 0
        self.clear()

    def clear(self) -> None:
        """Forget every entry; what was observed and not drained yet stays available to `drain`."""
        self.entries, self.size = _columns(0), 0
        self._resize(min(_FIRST_CAPACITY, self._max_entries), np.zeros(0, np.int64))

    @property
    def size_bytes(self) -> int:
        """Memory of the arrays."""
        return self.index.nbytes + sum(column.nbytes for column in self.entries)

    def observe(
        self, tokens: IntArray, first: int, law_ids: IntArray, law_probs: FloatArray, *, is_shared: bool = True
    ) -> None:
        """Count a run of verified positions into all orders.

        Args:
            tokens: `[n]` a trajectory's prompt and output.
            first: row `i` is the law after `tokens[: first + i + 1]`.
            law_ids: `[m, k]` distinct ids, `k <= 32`.
            law_probs: `[m, k]` their raw probabilities.
            is_shared: False keeps these observations out of `drain`.

        Raises:
            ValueError: shapes, ids or probabilities that cannot be laws after these tokens.
        """
        if law_ids.ndim != 2 or law_ids.shape != law_probs.shape or law_ids.shape[1] > KEPT:
            raise ValueError(f"laws {law_ids.shape} and {law_probs.shape}; expected [m, k] twice, k <= {KEPT}")
        if first < 0 or first + len(law_ids) > len(tokens):
            raise ValueError(f"{len(law_ids)} laws from position {first} on do not fit {len(tokens)} tokens")
        if not are_laws(law_ids, law_probs, self._vocabulary_size):
            raise ValueError(f"law ids outside [0, {self._vocabulary_size}) or probabilities outside [0, 1]")
        contexts = ContextDelta(*contexts_of_laws(tokens, first, law_ids, law_probs))
        self._add(contexts)
        if self._records_deltas and is_shared:
            self._undrained.append(contexts)
            self.n_undrained += contexts.n_contexts

    def merge(self, contexts: ContextDelta) -> None:
        """Add another table's contributions; they are not recorded.

        Raises:
            ValueError: an id outside the vocabulary.
        """
        if len(contexts.ids) and not 0 <= contexts.ids.min() <= contexts.ids.max() < self._vocabulary_size:
            raise ValueError("a delta has token ids outside the vocabulary: it comes from another target")
        self._add(contexts)

    def undrained(self) -> ContextDelta:
        """Return what `drain` would, and keep it."""
        return coalesce(self._undrained)

    def drain(self) -> ContextDelta:
        """Return what was recorded since the last call, coalesced."""
        contexts = self.undrained()
        self._undrained, self.n_undrained = [], 0
        return contexts

    def lookup(self, context: IntArray) -> tuple[int, IntArray, NDArray[np.float64]] | None:
        """Find the longest known suffix of a context, up to 4 tokens.

        Returns:
            Its order, `[k]` up to 10 ids, most probable first, and `[k]` their mean raw probabilities; None for no hit.
        """
        key, order, entry = np.uint64(0), 0, -1
        for length, token in enumerate(context[: -ORDERS - 1 : -1].tolist(), start=1):
            key = np.uint64(context_key(key, token, length))
            found = find_entry(self.index, self.entries[0], key)
            order, entry = (length, found) if found >= 0 else (order, entry)
        if entry < 0:
            return None
        _, count, n_ids, ids, sums = self.entries
        exposed = slice(min(EXPOSED, int(n_ids[entry])))
        return order, ids[entry, exposed].copy(), sums[entry, exposed] / (count[entry] * PROBABILITY_ONE)

    def _add(self, contexts: ContextDelta) -> None:
        columns = contexts.key, contexts.count, contexts.start, contexts.ids, contexts.sums
        self.size, done = add_contexts(self.index, self.entries, self.size, columns, 0)
        while done < contexts.n_contexts:
            self._make_room()
            self.size, done = add_contexts(self.index, self.entries, self.size, columns, done)

    def _make_room(self) -> None:
        if self.size < self._max_entries:
            self._resize(min(2 * self.size, self._max_entries), np.arange(self.size))
        else:
            by_use = np.lexsort((-np.arange(self.size), -self.entries[1]))
            self._resize(self.size, np.sort(by_use[: self.size // 2]))

    def _resize(self, capacity: int, kept: NDArray[np.int64]) -> None:
        fresh = _columns(capacity)
        for column, old in zip(fresh, self.entries, strict=True):
            column[: len(kept)] = old[kept]
        self.entries, self.size = fresh, len(kept)
        self.index = np.full(1 << (2 * capacity - 1).bit_length(), -1, np.int32)
        fill_index(self.index, fresh[0], self.size)


def _columns(capacity: int) -> Entries:
    return (
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int32),
        np.zeros((capacity, KEPT), np.int32),
        np.zeros((capacity, KEPT), np.int64),
    )
