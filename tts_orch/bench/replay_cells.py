"""Acceptance by replay: one recording, one method, one node count, one lockstep width a cell."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from tts_orch.bench.methods import draft_size, new_drafter
from tts_orch.bench.recordings import merged
from tts_orch.config import DraftingConfig
from tts_orch.engine.cost_model import CostModel
from tts_orch.json_lines import JsonObject
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import RecordedTrajectory, Recording
from tts_orch.replay.replayer import replay

__all__ = ["ReplayCell", "acceptance_row", "learns_from_rejected", "replay_row", "run_cells", "scope_of"]

_COUNTS: Final = (1, 4, 8, 16)  # trajectories
_ANY_VOCABULARY: Final = 1024


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """What to replay; a worker process can be sent it.

    Attributes:
        recordings: files; several are replayed as one.
        key: what identifies the cell in results.
        config: drafter and size.
        lockstep: trajectories that advance together.
        cost_curve: (rows, seconds) for the node budget.
    """

    recordings: tuple[Path, ...]
    key: JsonObject
    config: DraftingConfig
    lockstep: int
    cost_curve: tuple[tuple[int, float], ...]


def run_cells(cells: Sequence[ReplayCell], workers: int) -> Iterator[JsonObject]:
    """Yield a row a cell, in order."""
    if workers == 1:
        yield from map(replay_row, cells)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(replay_row, cells)


def replay_row(cell: ReplayCell) -> JsonObject:
    """Replay a cell and return its figures."""
    recording = merged([_load(path) for path in cell.recordings])
    drafter = new_drafter(cell.config, recording.vocabulary_size)
    if drafter is None:
        return {**cell.key, **_plain(recording)}
    measured = MeasuredDrafter(drafter)
    knots, seconds = zip(*cell.cost_curve, strict=True)
    size = draft_size(cell.config, measured, CostModel(seconds, knots).seconds)
    scope = scope_of(cell.config, is_greedy=recording.law.temperature == 0)
    for _ in replay(recording, measured, size, lockstep=cell.lockstep, scope_of=scope):
        pass
    return {**cell.key, **acceptance_row(measured)}


def acceptance_row(measured: MeasuredDrafter) -> JsonObject:
    """Return the figures of a replay or a real run."""
    acceptance = measured.acceptance
    figures = acceptance.to_json()
    figures["tau_by_index"] = list(figures["tau_by_index"].values())
    figures["acceptance_at_depth"] = list(figures["acceptance_at_depth"].values())
    times = {"drafting_us": measured.drafting_us, "observing_us": measured.observing_us}
    return {**figures, "tau_of_first": _tau_of_first(acceptance), **times}


def _tau_of_first(acceptance: Acceptance) -> dict[str, float]:
    """Return tau over the first 1, 4, 8, 16 trajectories of each problem, as far as there are so many."""
    counts = [count for _, count in sorted(acceptance.by_index.items())]
    return {
        str(n): sum(count.committed_tokens for count in counts[:n]) / sum(count.verify_steps for count in counts[:n])
        for n in _COUNTS
        if n <= len(counts)
    }


def _plain(recording: Recording) -> JsonObject:
    """Return the figures of plain decoding, which need no replay."""
    n_tokens = sum(len(one.tokens) for one in recording.trajectories)
    indices = {one.index for one in recording.trajectories}
    return {
        **Acceptance().to_json(),
        "tau": 1.0,
        "verify_steps": n_tokens,
        "committed_tokens": n_tokens,
        "tau_by_index": [1.0] * len(indices),
        "acceptance_at_depth": [],
        "drafting_us": 0.0,
        "observing_us": 0.0,
        "tau_of_first": {str(n): 1.0 for n in _COUNTS if n <= len(indices)},
    }


def scope_of(config: DraftingConfig, *, is_greedy: bool) -> Callable[[RecordedTrajectory], str]:
    """Return which trajectories share statistics; greedy ones of a problem are all equal, so they share over problems."""
    if config.statistics_scope == "request":
        return lambda one: one.name
    if config.statistics_scope == "problem" and not is_greedy:
        return lambda one: one.problem_id
    return lambda one: "all"


def learns_from_rejected(config: DraftingConfig) -> bool:
    """Whether the laws of rejected nodes matter, which no recording has."""
    drafter = new_drafter(config, _ANY_VOCABULARY)
    return drafter is not None and drafter.learns_from_rejected


@lru_cache(maxsize=8)
def _load(path: Path) -> Recording:
    return Recording.load(path)
