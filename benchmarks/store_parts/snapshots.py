"""How large a snapshot is, and how soon a new replica has it."""

from __future__ import annotations

import argparse
import time

import numpy as np

from store_parts.payloads import BATCH, N_IDS, delta_of, random_keys
from store_parts.rates import following, knows_last, last_delta
from store_parts.servers import RedisServer, running
from tts_orch.bench.markdown import Cell, table
from tts_orch.store.compactor import Compactor
from tts_orch.store.redis_client import RedisClient
from tts_orch.store.redis_keys import ScopeKeys
from tts_orch.store.redis_snapshots import read_head
from tts_orch.store.wire import pack
from tts_orch.store_address import StoreAddress

__all__ = ["snapshot"]

_SCOPE = "run"
_PAYLOAD_BYTES = 8 + 4 + N_IDS * (4 + 2)
"""Of a context: key, count, and for each id four bytes and a half float."""
_STEP_S = 0.03


def snapshot(arguments: argparse.Namespace) -> str:
    """Bytes an entry of log and snapshot, and the time until a new replica has them all."""
    n = arguments.entries
    with running(arguments.server) as server:
        empty = server.used_bytes
        _write(server, n)
        logged = server.used_bytes - empty
        seconds = _fold(server, n)
        folded = server.used_bytes - empty
        sizes: list[list[Cell]] = [
            ["payload", _PAYLOAD_BYTES, 1.0],
            ["log", logged / n, logged / n / _PAYLOAD_BYTES],
            ["snapshot", folded / n, folded / n / _PAYLOAD_BYTES],
        ]
        alone, beside = _warm_up_s(server, n, 0.001), _warm_up_s(server, n, _STEP_S)
    text = table([f"{n} entries of {N_IDS} ids", "bytes an entry", "against the payload"], sizes)
    return text + (
        f"\nFolded in {seconds:.1f} s. A new replica has them all after {alone:.1f} s if nothing else is to be done, and after "
        f"{beside:.1f} s between steps of {1000 * _STEP_S:.0f} ms, of which merging takes a tenth at most.\n"
    )


def _write(server: RedisServer, n: int) -> None:
    """Write a log in which every context comes once, the last key among them."""
    log, keys, generator = (
        server.log(),
        np.random.default_rng(1).permutation(random_keys(n - 1)),
        np.random.default_rng(2),
    )
    blobs = (pack(delta_of(np.sort(keys[i : i + BATCH]), generator)) for i in range(0, n - 1, BATCH))
    for sequence, blob in enumerate([*blobs, pack(last_delta())]):
        log.append(_SCOPE, "writer", sequence, blob, sequence - 1)


def _fold(server: RedisServer, n: int) -> float:
    """Fold the log until the snapshot has everything and the log next to nothing; return the seconds it took."""
    client = RedisClient(StoreAddress.parse(server.url), "compactor")
    compactor, keys, started = Compactor(client, fold_bytes=1, quiet_s=0.0), ScopeKeys(_SCOPE), time.perf_counter()
    while (head := read_head(client, keys)) is None or head.n_contexts < n or client.execute("XLEN", keys.log) > 1:
        compactor.sweep()
    return time.perf_counter() - started


def _warm_up_s(server: RedisServer, n: int, step_s: float) -> float:
    with following(server, _SCOPE, 2 * n) as (stand, replica):
        started = time.perf_counter()
        while not knows_last(stand, _SCOPE):
            replica.apply()
            time.sleep(step_s)
        return time.perf_counter() - started
