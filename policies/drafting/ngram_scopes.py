"""Scopes of an n-gram table: serial numbers, the salts of their keys, and which are open.

A reopened scope gets a new serial number, hence another salt: what is left of its former entries is never found.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tts_orch.policies.drafting.ngram_kernels import HEADERS, SCOPES, SERIAL, Columns, kernel

__all__ = ["is_dead", "is_open", "salt_of", "serial_of"]

_STRIDE: Final = 0x9E3779B97F4A7C15
_INVERSE: Final = pow(_STRIDE, -1, 1 << 64)


@kernel
def salt_of(serial: int) -> np.uint64:
    """Return the salt of a scope: multiples of an odd number near 2^64 / golden ratio lie far apart (Fibonacci hashing)."""
    return np.uint64(serial) * np.uint64(_STRIDE)


@kernel
def serial_of(salt: np.uint64) -> int:
    """Return the serial number that a salt was made of."""
    return int(np.int64(salt * np.uint64(_INVERSE)))


@kernel
def is_open(columns: Columns, serial: int) -> bool:
    """Return whether this is an open scope."""
    scopes = columns[SCOPES]
    return serial > 0 and scopes[serial % len(scopes), 0] == serial


@kernel
def is_dead(columns: Columns, entry: int) -> bool:
    """Return whether an entry's scope was closed."""
    return not is_open(columns, np.int64(columns[HEADERS][entry, SERIAL]))
