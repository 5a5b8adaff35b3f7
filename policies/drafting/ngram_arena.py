"""The arena of an n-gram table: blocks of 1 to 8 units of 4 cells, out of pages of 64 units.

A page is a bitmap of its free units, so free neighbours are one run without further ado. Pages are listed by their
longest free run, and a block comes from the page that fits best. Pages that were never used are taken last and in order:
the memory in use grows with the table.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tts_orch.policies.drafting.ngram_kernels import FREE_UNITS, LINKS, STATE, Columns, kernel

__all__ = ["ARENA_STATES", "PAGE_CELLS", "RUNS", "TOUCHED", "UNIT", "allocate", "n_units", "release"]

UNIT: Final = 4
"""Cells of a unit."""
PAGE_CELLS: Final = 64 * UNIT
"""Cells of a page."""
_LONGEST: Final = 8

TOUCHED: Final = 0
"""In `STATE`: pages that were used at some time, the first ones."""
RUNS: Final = 1
"""In `STATE`, at `RUNS + r`: the first page whose longest free run is r units (8: or more), -1 for none."""
ARENA_STATES: Final = RUNS + _LONGEST + 1
"""Where the arena's counters end."""


@kernel
def n_units(n_ids: int) -> int:
    """Return the units that hold so many ids."""
    return (n_ids + UNIT - 1) // UNIT


@kernel
def allocate(columns: Columns, units: int) -> int:
    """Return the first cell of a block, or -1 where no page has room for it."""
    free, state = columns[FREE_UNITS], columns[STATE]
    run = units
    while run <= _LONGEST and state[RUNS + run] < 0:
        run += 1
    if run <= _LONGEST:
        page = state[RUNS + run]
    elif state[TOUCHED] < len(free):
        page = state[TOUCHED]
        state[TOUCHED] += 1
        free[page] = ~np.uint64(0)
        _link(columns, page, _LONGEST)
    else:
        return -1
    first = _first_run(free[page], units)
    _set_free(columns, page, free[page] & ~_mask(first, units))
    return int(page * PAGE_CELLS + first * UNIT)


@kernel
def release(columns: Columns, start: int, units: int) -> None:
    """Give a block back."""
    page, first = start // PAGE_CELLS, start % PAGE_CELLS // UNIT
    _set_free(columns, page, columns[FREE_UNITS][page] | _mask(first, units))


@kernel
def _mask(first: int, units: int) -> np.uint64:
    return ((np.uint64(1) << np.uint64(units)) - np.uint64(1)) << np.uint64(first)


@kernel
def _first_run(free: np.uint64, units: int) -> int:
    """Return where the first run of so many free units begins; there is one."""
    for _ in range(units - 1):
        free &= free >> np.uint64(1)
    first = 0
    while not free & np.uint64(1):
        free >>= np.uint64(1)
        first += 1
    return first


@kernel
def _longest_run(free: np.uint64) -> int:
    run = 0
    while free and run < _LONGEST:
        free &= free >> np.uint64(1)
        run += 1
    return run


@kernel
def _set_free(columns: Columns, page: int, free: np.uint64) -> None:
    units = columns[FREE_UNITS]
    before, after = _longest_run(units[page]), _longest_run(free)
    units[page] = free
    if before != after:
        _unlink(columns, page, before)
        _link(columns, page, after)


@kernel
def _link(columns: Columns, page: int, run: int) -> None:
    links, state = columns[LINKS], columns[STATE]
    following = state[RUNS + run]
    links[page, 0], links[page, 1] = following, -1
    if following >= 0:
        links[following, 1] = page
    state[RUNS + run] = page


@kernel
def _unlink(columns: Columns, page: int, run: int) -> None:
    links, state = columns[LINKS], columns[STATE]
    following, previous = links[page, 0], links[page, 1]
    if following >= 0:
        links[following, 1] = previous
    if previous >= 0:
        links[previous, 0] = following
    else:
        state[RUNS + run] = following
