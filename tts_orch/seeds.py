"""Counter-based randomness: trajectory seeds and the Philox integers that all noise comes from.

Nothing here keeps state. A trajectory seed is a hash of (run seed, problem id, path); a noise word is a function of
(trajectory seed, absolute position, token id). The integers are the contract: NumPy here, numba in
`policies.drafting.gumbel` and torch in `engine.noise` must agree on every one of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "PHILOX_M0",
    "PHILOX_M1",
    "PHILOX_ROUNDS",
    "PHILOX_W0",
    "PHILOX_W1",
    "noise_words",
    "philox",
    "stream_seed",
    "trajectory_seed",
]

PHILOX_M0: Final = 0xD2511F53
PHILOX_M1: Final = 0xCD9E8D57
PHILOX_W0: Final = 0x9E3779B9
PHILOX_W1: Final = 0xBB67AE85
PHILOX_ROUNDS: Final = 10
_MASK: Final = np.uint64(0xFFFFFFFF)


def trajectory_seed(run_seed: int, problem_id: str, path: Sequence[int]) -> int:
    """Return the 64-bit seed of the trajectory at `path` of a problem: a pure function of its place in the run."""
    place = json.dumps([run_seed, problem_id, list(path)], separators=(",", ":"), ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "big")


def stream_seed(seed: int, attempt: int, purpose: str) -> int:
    """Return the 64-bit seed of one of a trajectory's streams of randomness, apart from all others.

    Args:
        seed: trajectory seed.
        attempt: how often the trajectory was begun before; what an attempt drew must not be used again.
        purpose: name of the stream.
    """
    place = json.dumps([seed, attempt, purpose], separators=(",", ":"), ensure_ascii=True)
    return int.from_bytes(hashlib.blake2b(place.encode(), digest_size=8).digest(), "big")


def philox(key: int, counter: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Apply Philox4x32-10 to counters.

    Args:
        key: 64 bits; the low word is the first key word.
        counter: `[..., 4]` words, first word first.

    Returns:
        `[..., 4]` words.

    Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), section 4; the published test vectors
    of Random123 hold.
    """
    x0, x1, x2, x3 = (counter[..., i].astype(np.uint64) for i in range(4))
    k0, k1 = key & 0xFFFFFFFF, (key >> 32) & 0xFFFFFFFF
    for _ in range(PHILOX_ROUNDS):
        low, high = x0 * np.uint64(PHILOX_M0), x2 * np.uint64(PHILOX_M1)
        x0, x1, x2, x3 = (
            (high >> np.uint64(32)) ^ x1 ^ np.uint64(k0),
            high & _MASK,
            (low >> np.uint64(32)) ^ x3 ^ np.uint64(k1),
            low & _MASK,
        )
        k0, k1 = (k0 + PHILOX_W0) & 0xFFFFFFFF, (k1 + PHILOX_W1) & 0xFFFFFFFF
    return np.stack([x0, x1, x2, x3], axis=-1).astype(np.uint32)


def noise_words(seed: int, position: int, token_ids: NDArray[np.integer], plane: int = 0) -> NDArray[np.uint32]:
    """Return the 32-bit noise word of each token id at one absolute position (prompt + output).

    The counter is `(id // 4, position, plane, 0)` and word `id % 4` of the output belongs to `id`, so that one Philox
    call serves four neighbouring ids. Plane 0 holds the high words of the uniforms, plane 1 the low words;
    planes 2 and 3 do the same for the coins of rejection mode.
    """
    ids = np.asarray(token_ids, dtype=np.int64)
    counter = np.zeros((*ids.shape, 4), dtype=np.uint32)
    counter[..., 0] = ids // 4
    counter[..., 1] = position
    counter[..., 2] = plane
    words = philox(seed, counter)
    return np.take_along_axis(words, (ids % 4)[..., None], axis=-1)[..., 0]
