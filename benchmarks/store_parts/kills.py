"""What is left of the statistics when workers, the compactor and Redis are killed at random moments."""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from store_parts.servers import running
from tests.store.kills import count_after_kills
from tts_orch.bench.markdown import Cell, table

__all__ = ["kill"]

_WORKERS = 4
_PAUSE_S = 0.05
_DISKS = {"every write": (("appendonly", "yes"), ("appendfsync", "always")), "nothing": ()}


def kill(arguments: argparse.Namespace) -> str:
    """Four workers send, and they, the compactor and Redis are killed at random: nothing twice, and what was lost.

    What a writer that was killed had sent can be lost where Redis keeps nothing on disk; the others send theirs again.
    """
    rows: list[list[Cell]] = []
    for disk, options in _DISKS.items():
        with TemporaryDirectory() as folder, running(arguments.server, *options) as server:
            outcome = count_after_kills(
                server,
                Path(folder),
                n_workers=_WORKERS,
                n_deltas=arguments.kill_deltas,
                n_kills=arguments.kills,
                pause_s=_PAUSE_S,
                seed=arguments.seed,
            )
        counts = (
            outcome.acknowledged,
            outcome.stored,
            outcome.unsent,
            outcome.twice,
            outcome.lost,
            outcome.lost_of_living,
        )
        rows.append([disk, *counts, "yes" if outcome.batches_are_whole and outcome.tables_agree else "NO"])
        if outcome.twice or outcome.unsent or outcome.lost_of_living or (options and outcome.lost):
            raise SystemExit(f"on disk {disk}: {outcome}")
    header = ["on disk", "acknowledged", "stored", "never sent", "twice", "lost", "of living writers", "tables agree"]
    note = f"{_WORKERS} workers, {arguments.kill_deltas} deltas each, {arguments.kills} kills of each kind.\n\n"
    return note + table(header, rows)
