"""The draft statistics of a drafter: which tokens the target's raw law puts after each context of 1 to 4 tokens.

An entry counts observations of one context in one scope and sums their quantised laws over up to 32 ids; the law it
exposes is the mean over its 10 largest sums. Integers make the sums independent of the order in which workers'
contributions arrive.

Source: STAND, arXiv 2506.04708, section 3 (averaged n-gram laws, back-off); integer sums and 32 kept ids are ours.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tts_orch.policies.drafting.context_delta import KEPT, ORDERS, PROBABILITY_ONE, ContextDelta
from tts_orch.policies.drafting.ngram_arena import ARENA_STATES, PAGE_CELLS, RUNS, TOUCHED
from tts_orch.policies.drafting.ngram_eviction import CAPACITY, DEAD, EVICTED, OCCUPIED, STATES
from tts_orch.policies.drafting.ngram_kernels import (
    IDS,
    KEYS,
    SCOPES,
    STATE,
    SUMS,
    Columns,
    Keys,
    context_key,
    entry_span,
    find_entry,
)
from tts_orch.policies.drafting.ngram_scopes import salt_of, serial_of
from tts_orch.policies.drafting.ngram_updates import are_contexts, are_laws, are_open, merge_contexts, observe_laws
from tts_orch.records import FloatArray, IntArray

__all__ = ["EXPOSED", "NgramTable"]

EXPOSED: Final = 10
"""Ids of an entry that drafts are drawn from."""
_CELLS_PER_ENTRY: Final = 20
"""Recorded reasoning, chat and code have 16 ids an entry in the mean."""
_SLOT_BYTES: Final = 8 + 5 * 4
_PAGE_BYTES: Final = 8 * PAGE_CELLS + 16
_MOST_SCOPES: Final = 1 << 16


class NgramTable:
    """A hash table of fixed size for all scopes: a full one forgets closed scopes first, then what was used least.

    All memory is reserved at once and none is ever copied; the operating system hands out pages as they are touched.

    Args:
        max_entries: contexts it holds at most, at least 16; about 200 bytes each, for 20 ids in the mean. Where entries
            have more, fewer fit.
        vocabulary_size: token ids must be below it.

    Attributes:
        columns: the arrays, for compiled readers; the same ones for the table's life.
    """

    def __init__(self, *, max_entries: int = 1 << 20, vocabulary_size: int = 1 << 31) -> None:
        if max_entries < 16:
            raise ValueError(f"max_entries: {max_entries} is too few; give 16 or more")
        self._vocabulary_size = vocabulary_size
        self._salts: dict[str, np.uint64] = {}
        self._last_serial = 0
        self.columns = _reserve(max_entries)

    def open(self, scope: str) -> np.uint64:
        """Begin a scope, empty, unless it is open; return the salt of its keys."""
        salt = self._salts.get(scope)
        if salt is None:
            salt = self._salts[scope] = self._open()
        return salt

    def close(self, scope: str) -> None:
        """Forget a scope and its salt; its entries make room first."""
        salt = self._salts.pop(scope, None)
        if salt is not None:
            scopes, state = self.columns[SCOPES], self.columns[STATE]
            place = serial_of(salt) % _MOST_SCOPES
            state[DEAD] += scopes[place, 1]
            scopes[place] = 0

    @property
    def scopes(self) -> frozenset[str]:
        """Open scopes."""
        return frozenset(self._salts)

    @property
    def size(self) -> int:
        """Entries of open scopes."""
        state = self.columns[STATE]
        return int(state[OCCUPIED] - state[DEAD])

    @property
    def n_evicted(self) -> int:
        """Entries of open scopes that had to make room so far."""
        return int(self.columns[STATE][EVICTED])

    @property
    def size_bytes(self) -> int:
        """Memory that was touched so far, at most: all slots, and the used pages of the arena."""
        return _SLOT_BYTES * len(self.columns[KEYS]) + _PAGE_BYTES * int(self.columns[STATE][TOUCHED])

    @property
    def reserved_bytes(self) -> int:
        """Memory that the table will ever use."""
        return sum(column.nbytes for column in self.columns)

    def observe(
        self,
        salts: Keys,
        history: IntArray,
        law_ids: IntArray,
        law_probs: FloatArray,
        *,
        returns_contexts: bool = False,
    ) -> ContextDelta | None:
        """Count verified positions, of any trajectories, into all orders.

        Args:
            salts: `[r]` what `open` returned for the scope of each position.
            history: `[r, ORDERS]` the last tokens up to each position, most recent first, -1 where the text is shorter.
            law_ids: `[r, k]` distinct ids of the law after each position, `k <= 32`.
            law_probs: `[r, k]` their raw probabilities.
            returns_contexts: whether the observations are wanted as a delta: row by row, orders rising.

        Raises:
            ValueError: a closed scope, or shapes, ids or probabilities that cannot be laws; nothing was counted.
        """
        if law_ids.ndim != 2 or law_ids.shape != law_probs.shape or law_ids.shape[1] > KEPT:
            raise ValueError(f"laws {law_ids.shape} and {law_probs.shape}; expected [r, k] twice, k <= {KEPT}")
        if salts.shape != (len(law_ids),) or history.shape != (len(law_ids), ORDERS):
            raise ValueError(f"salts {salts.shape} and histories {history.shape} do not fit {len(law_ids)} laws")
        salts, history = _compiled(salts, np.uint64), _compiled(history, np.int32)
        law_ids, law_probs = _compiled(law_ids, np.int32), _compiled(law_probs, np.float32)
        if not are_laws(law_ids, law_probs, self._vocabulary_size):
            raise ValueError(f"law ids outside [0, {self._vocabulary_size}) or probabilities outside [0, 1]")
        if not are_open(self.columns, salts):
            raise ValueError("a scope is not open: its salt is unknown")
        contexts = observe_laws(self.columns, salts, history, law_ids, law_probs, returns_contexts)
        return ContextDelta(*contexts) if returns_contexts else None

    def merge(self, scope: str, contexts: ContextDelta) -> None:
        """Add another table's contributions to an open scope.

        Raises:
            ValueError: the scope is not open, an id is outside the vocabulary, or a sum exceeds its count.
        """
        if scope not in self._salts:
            raise ValueError(f"scope {scope!r} is not open")
        columns = (
            _compiled(contexts.key, np.uint64),
            _compiled(contexts.order, np.uint8),
            _compiled(contexts.count, np.int64),
            _compiled(contexts.start, np.int64),
            _compiled(contexts.ids, np.int32),
            _compiled(contexts.sums, np.int64),
        )
        if not are_contexts(columns, self._vocabulary_size):
            raise ValueError(
                "a delta has token ids outside the vocabulary or impossible sums: it comes from another target"
            )
        merge_contexts(self.columns, self._salts[scope], columns)

    def lookup(self, scope: str, context: IntArray) -> tuple[int, IntArray, NDArray[np.float64]] | None:
        """Find the longest known suffix of a context, up to 4 tokens; it does not count as use.

        Returns:
            Its order, `[k]` up to 10 ids, most probable first, and `[k]` their mean raw probabilities; None for no hit.
        """
        salt = self._salts.get(scope)
        if salt is None:
            return None
        key, order, entry = np.uint64(0), 0, -1
        for length, token in enumerate(context[: -ORDERS - 1 : -1].tolist(), start=1):
            key = np.uint64(context_key(key, token, length))
            found = find_entry(self.columns, key ^ salt)
            order, entry = (length, found) if found >= 0 else (order, entry)
        if entry < 0:
            return None
        count, start, n_ids = entry_span(self.columns, entry)
        exposed = slice(start, start + min(EXPOSED, n_ids))
        return order, self.columns[IDS][exposed].copy(), self.columns[SUMS][exposed] / (count * PROBABILITY_ONE)

    def _open(self) -> np.uint64:
        if len(self._salts) == _MOST_SCOPES:
            raise ValueError(f"{_MOST_SCOPES} scopes are open; close some")
        scopes = self.columns[SCOPES]
        self._last_serial += 1
        while scopes[self._last_serial % _MOST_SCOPES, 0]:
            self._last_serial += 1
        scopes[self._last_serial % _MOST_SCOPES, 0] = self._last_serial
        return np.uint64(salt_of(self._last_serial))


def _reserve(max_entries: int) -> Columns:
    n_slots = max_entries * 4 // 3 + 1
    n_pages = -(-max_entries * _CELLS_PER_ENTRY // PAGE_CELLS)
    state = np.zeros(STATES, np.int64)
    state[RUNS:ARENA_STATES] = -1
    state[CAPACITY] = max_entries
    keys, headers = np.zeros(n_slots, np.uint64), np.zeros((n_slots, 5), np.int32)
    keys.fill(0)  # slots are used in random order: have their pages now, rather than all of them in the first steps
    headers.fill(0)
    return (
        keys,
        headers,
        np.empty(n_pages * PAGE_CELLS, np.int32),
        np.empty(n_pages * PAGE_CELLS, np.uint32),
        np.empty(n_pages, np.uint64),
        np.empty((n_pages, 2), np.int32),
        np.zeros((_MOST_SCOPES, 2), np.int64),
        state,
    )


def _compiled(column: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Return an array of exactly the type that the loops were compiled for; numba tells read-only ones apart."""
    column = np.ascontiguousarray(column, dtype)
    return column if column.flags.writeable else column.copy()
