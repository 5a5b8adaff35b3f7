"""How an n-gram table forgets: closed scopes first, then what was used least, a bounded number of steps at a time.

Source: GCLOCK, A. J. Smith, "Sequentiality and prefetching in database systems", ACM TODS 3(3), 1978; deletion without
tombstones: D. E. Knuth, The Art of Computer Programming 3, 6.4, algorithm R.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tts_orch.policies.drafting.ngram_arena import ARENA_STATES, n_units, release
from tts_orch.policies.drafting.ngram_kernels import (
    HEADERS,
    KEYS,
    N_IDS,
    SCOPES,
    SERIAL,
    START,
    STATE,
    USE,
    Columns,
    home,
    kernel,
)
from tts_orch.policies.drafting.ngram_scopes import is_dead

__all__ = ["CAPACITY", "DEAD", "EVICTED", "OCCUPIED", "STATES", "evict", "reclaim"]

OCCUPIED: Final = ARENA_STATES
"""In `STATE`: entries, those of closed scopes included."""
DEAD: Final = ARENA_STATES + 1
"""In `STATE`: entries of closed scopes."""
CAPACITY: Final = ARENA_STATES + 2
"""In `STATE`: most entries."""
EVICTED: Final = ARENA_STATES + 3
"""In `STATE`: entries of open scopes that had to make room so far."""
_CLOCK: Final = ARENA_STATES + 4
_RECLAIM: Final = ARENA_STATES + 5
STATES: Final = ARENA_STATES + 6
"""Length of `STATE`."""

_MOST_STEPS: Final = 64
"""Entries that one eviction looks at: no search for a victim stalls."""


@kernel
def evict(columns: Columns, spared: np.uint64) -> None:
    """Remove one entry, but not the one with key `spared`; entry numbers change."""
    keys, headers, state = columns[KEYS], columns[HEADERS], columns[STATE]
    n_dead = state[DEAD]
    reclaim(columns, _MOST_STEPS)
    if state[DEAD] < n_dead or state[OCCUPIED] < 2:
        return
    hand, victim, least, steps = int(state[_CLOCK]), -1, 1 << 30, 0
    while steps < _MOST_STEPS and least > 0:
        if keys[hand] != 0 and keys[hand] != spared:
            if headers[hand, USE] < least:
                victim, least = hand, int(headers[hand, USE])
            headers[hand, USE] -= headers[hand, USE] > 0
            steps += 1
        hand = _next(hand, len(keys))
    state[_CLOCK] = hand
    state[EVICTED] += not is_dead(columns, victim)
    _remove(columns, victim)


@kernel
def reclaim(columns: Columns, n_steps: int) -> None:
    """Look at up to `n_steps` slots for entries of closed scopes and remove them; entry numbers change."""
    keys, state = columns[KEYS], columns[STATE]
    hand = state[_RECLAIM]
    for _ in range(n_steps):
        if state[DEAD] == 0:
            break
        if keys[hand] != 0 and is_dead(columns, hand):
            _remove(columns, hand)  # another entry may have moved here: look again
        else:
            hand = _next(hand, len(keys))
    state[_RECLAIM] = hand


@kernel
def _next(slot: int, n_slots: int) -> int:
    return slot + 1 if slot + 1 < n_slots else 0


@kernel
def _remove(columns: Columns, entry: int) -> None:
    """Remove an entry and close the gap: later entries of its run move up, none in front of its home."""
    keys, headers, scopes, state = columns[KEYS], columns[HEADERS], columns[SCOPES], columns[STATE]
    release(columns, np.int64(headers[entry, START]), n_units(headers[entry, N_IDS]))
    if is_dead(columns, entry):
        state[DEAD] -= 1
    else:
        scopes[headers[entry, SERIAL] % len(scopes), 1] -= 1
    state[OCCUPIED] -= 1
    n_slots, gap, slot = len(keys), entry, _next(entry, len(keys))
    while keys[slot] != 0:
        if (slot - home(keys[slot], n_slots)) % n_slots >= (slot - gap) % n_slots:
            keys[gap] = keys[slot]
            for field in range(headers.shape[1]):
                headers[gap, field] = headers[slot, field]
            gap = slot
        slot = _next(slot, n_slots)
    keys[gap] = 0
