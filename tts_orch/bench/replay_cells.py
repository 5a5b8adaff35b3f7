"""Acceptance by replay: one recording, one method, one node count, one lockstep width a cell."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tts_orch.bench.methods import cost_model, draft_size, new_drafter, scope_name
from tts_orch.config import DraftingConfig, EngineConfig
from tts_orch.json_lines import JsonObject
from tts_orch.policies.drafting.draft_tree import Drafter
from tts_orch.replay.acceptance import Acceptance
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import Recording
from tts_orch.replay.replayer import FeaturesOf, ScopeOf, replay

if TYPE_CHECKING:
    from tts_orch.engine.target import Target

__all__ = ["ReplayCell", "acceptance_row", "replay_row", "replayed", "run_cells", "scope_of"]

_COUNTS: Final = (1, 4, 8, 16)  # trajectories


@dataclass(frozen=True, slots=True)
class ReplayCell:
    """What to replay; a worker process can be sent it.

    Attributes:
        recordings: files; several are replayed as one.
        key: what identifies the cell in results.
        config: drafter and size.
        lockstep: trajectories that advance together.
        cost_curve: (rows, seconds) for the node budget.
        target: the model, for trained drafters.
    """

    recordings: tuple[Path, ...]
    key: JsonObject
    config: DraftingConfig
    lockstep: int
    cost_curve: tuple[tuple[int, float], ...]
    target: str


def run_cells(cells: Sequence[ReplayCell], workers: int) -> Iterator[JsonObject]:
    """Yield a row a cell, in order."""
    if workers == 1:
        yield from map(replay_row, cells)
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(replay_row, cells)


def replay_row(cell: ReplayCell) -> JsonObject:
    """Replay a cell and return its figures."""
    return {**cell.key, **replayed(cell, Recording.joined([_load(path) for path in cell.recordings]))}


def replayed(cell: ReplayCell, recording: Recording) -> JsonObject:
    """Replay the drafter of a cell on a recording and return its figures."""
    if cell.config.drafters:
        return _replayed_with_target(cell, recording)
    drafter = new_drafter(cell.config, recording.vocabulary_size)
    return _plain(recording) if drafter is None else _figures(cell, recording, drafter, None)


def _replayed_with_target(cell: ReplayCell, recording: Recording) -> JsonObject:
    """Replay trained drafters, which read hidden states of the target and share its embedding and LM head."""
    from tts_orch.drafters.loading import load_drafter  # loads torch, which other drafters do without
    from tts_orch.replay.teacher_forcing import forced_features

    target = _target(cell.target)
    drafter = load_drafter(cell.config, target, is_shared=False)
    assert drafter is not None, "it has trained drafters"
    layers = drafter.feature_layers
    return _figures(cell, recording, drafter, lambda one: forced_features(target, one.prompt, one.tokens, layers))


@cache
def _target(name: str) -> Target:
    """Return a target, loaded once a process; processes side by side have a core each."""
    from tts_orch.engine.target import load_target
    from tts_orch.engine.threads import set_threads

    if multiprocessing.parent_process() is not None:
        set_threads(1)
    return load_target(EngineConfig(target=name, drafter="none"))


def _figures(cell: ReplayCell, recording: Recording, drafter: Drafter, features: FeaturesOf | None) -> JsonObject:
    measured = MeasuredDrafter(drafter)
    size = draft_size(cell.config, measured, cost_model(cell.cost_curve).seconds)
    scopes = scope_of(cell.config, is_greedy=recording.law.temperature == 0)
    for _ in replay(recording, measured, size, lockstep=cell.lockstep, scope_of=scopes, features=features):
        pass
    return acceptance_row(measured)


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


def scope_of(config: DraftingConfig, *, is_greedy: bool) -> ScopeOf:
    """Return which statistics recorded trajectories share."""
    return lambda one: scope_name(config, one.problem_id, one.index, is_greedy=is_greedy)


@lru_cache(maxsize=8)
def _load(path: Path) -> Recording:
    return Recording.load(path)
