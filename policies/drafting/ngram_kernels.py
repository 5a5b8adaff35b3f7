"""The arrays of an n-gram table, and what compiled readers do with them: context keys, finding an entry, its law.

Entries lie in an open-addressing table with linear probing: the entry's number is its slot, and holds until the next
write. Their ids and sums lie in an arena, one block each.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray

from tts_orch.records import IntArray

__all__ = [
    "COUNT",
    "FREE_UNITS",
    "HEADERS",
    "IDS",
    "KEYS",
    "LINKS",
    "MOST_USE",
    "N_IDS",
    "SCOPES",
    "SERIAL",
    "START",
    "STATE",
    "SUMS",
    "USE",
    "Columns",
    "Keys",
    "Longs",
    "context_key",
    "entry_span",
    "find_entry",
    "home",
    "kernel",
    "touch",
]

Keys: TypeAlias = NDArray[np.uint64]
Longs: TypeAlias = NDArray[np.int64]

Columns: TypeAlias = tuple[Keys, IntArray, IntArray, NDArray[np.uint32], Keys, IntArray, Longs, Longs]
"""The arrays of a table; a plain tuple, because numba is slow to recognise any other. Read by these numbers:"""

KEYS: Final = 0
"""`[slots]` uint64: context key ^ salt of the scope; 0 for an empty slot."""
HEADERS: Final = 1
"""`[slots, 5]` int32, by the next numbers."""
IDS: Final = 2
"""`[cells]` int32, the arena: ids of an entry side by side, sorted by falling sum, then by id."""
SUMS: Final = 3
"""`[cells]` uint32: the sum of each id's quantised probabilities."""
FREE_UNITS: Final = 4
"""`[pages]` uint64: a bit for each free unit of a page of the arena."""
LINKS: Final = 5
"""`[pages, 2]` int32: next and previous page with as long a free run."""
SCOPES: Final = 6
"""`[places, 2]` int64: serial number of the open scope at this place (0 for none), and its entries."""
STATE: Final = 7
"""`[..]` int64: counters of the table and its arena."""

COUNT: Final = 0
"""Observations of an entry."""
START: Final = 1
"""Where its ids begin in the arena."""
N_IDS: Final = 2
"""How many it has."""
USE: Final = 3
"""How often it was used of late."""
SERIAL: Final = 4
"""Which scope it belongs to."""

MOST_USE: Final = 7
"""Uses beyond this many are not remembered."""

kernel = numba.njit(cache=True, _nrt=False)
"""Compiles a function that allocates nothing. Counting references to the columns, at every call that takes them, would cost
up to ten times what these functions do."""


@kernel
def context_key(shorter: np.uint64, token: int, order: int) -> np.uint64:
    """Return the key of `token` followed by the context of `order - 1` tokens whose key is `shorter` (0 for none).

    Keys travel between workers, so this is a contract: SplitMix64's output function over key, token and order.
    """
    mixed = shorter ^ ((np.uint64(token) << np.uint64(3)) | np.uint64(order))
    mixed += np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@kernel
def home(key: np.uint64, n_slots: int) -> int:
    """Return the slot where the search for a key begins."""
    return int(np.int64(((key >> np.uint64(32)) * np.uint64(n_slots)) >> np.uint64(32)))


@kernel
def find_entry(columns: Columns, key: np.uint64) -> int:
    """Return the number of the entry with this key, `context_key ^ salt`, or -1."""
    keys = columns[KEYS]
    slot = home(key, len(keys))
    while keys[slot] != 0:
        if keys[slot] == key:
            return slot
        slot += 1
        if slot == len(keys):
            slot = 0
    return -1


@kernel
def entry_span(columns: Columns, entry: int) -> tuple[int, int, int]:
    """Return an entry's observations, and where its ids and sums begin in the arena and how many they are (1 to 32)."""
    header = columns[HEADERS][entry]
    return int(header[COUNT]), int(header[START]), int(header[N_IDS])


@kernel
def touch(columns: Columns, entry: int) -> None:
    """Count a use of an entry: it is forgotten later."""
    headers = columns[HEADERS]
    if headers[entry, USE] < MOST_USE:
        headers[entry, USE] += 1
