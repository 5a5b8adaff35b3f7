"""Acceptance length of every row by replay, problem by problem, in as many processes as are wanted."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Final

from safetensors.torch import load_file

from taps_parts.recordings import LAST_LAYER, Workshop, loaded_target
from taps_parts.replaying import replayed
from taps_parts.results import digests, identity, read_results
from taps_parts.rows import ROWS, Row, drafting
from tts_orch.drafters.loading import load_drafter
from tts_orch.engine.threads import set_threads
from tts_orch.json_lines import JsonLinesFile, JsonObject
from tts_orch.policies.drafting.composed_kinds import member_of_source
from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.routing.tree_confidence import confidence
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import Recording, problem_and_index

__all__ = ["RESULTS", "acceptance"]

RESULTS: Final = "acceptance.jsonl"


@dataclass(slots=True)
class _Count:
    """What became of one problem.

    Attributes:
        committed: tokens.
        steps: verify steps.
        nodes: draft nodes.
        confidence: sum over verify steps of the mean probability of the verified tree's nodes, for the choice in hindsight.
        member_steps: by number of a member, verify steps in which most nodes of the tree were its own.
    """

    committed: int = 0
    steps: int = 0
    nodes: int = 0
    confidence: float = 0.0
    member_steps: dict[int, int] = field(default_factory=dict)

    def add(self, step: VerifiedStep) -> None:
        self.committed += len(step.committed)
        self.steps += 1
        self.nodes += step.tree.n_nodes - 1
        self.confidence += confidence(step.tree) / max(step.tree.n_nodes - 1, 1)
        members = [member_of_source(source) for source in step.tree.source[1:].tolist()]
        if members:
            member = max(set(members), key=members.count)
            self.member_steps[member] = self.member_steps.get(member, 0) + 1


@dataclass(frozen=True, slots=True)
class _Cell:
    """A row on a recording; another process can be sent it.

    Attributes:
        key: what identifies the result.
        row: who drafts.
        heads: folder of folders of heads.
        recorded: file of what the target said,
        states: and of its last hidden states.
    """

    key: JsonObject
    row: Row
    heads: Path
    recorded: Path
    states: Path


def acceptance(arguments: argparse.Namespace) -> None:
    """Acceptance length of every row by replay."""
    path = arguments.out / RESULTS
    cells = _missing(arguments, {identity(result) for result in read_results(path)})
    results = JsonLinesFile(path)
    for n_done, (cell, figures) in enumerate(_run(cells, arguments), start=1):
        key = cell.key
        results.append({**key, **figures})
        place = f"{key['workload']} T={key['temperature']:g} {key['loss']} {key['row']}"
        print(f"{n_done}/{len(cells)} {place}: tau {figures['tau']:.2f}, {figures['seconds']:.0f} s", flush=True)
    results.close()


def _missing(arguments: argparse.Namespace, done: Container[str]) -> list[_Cell]:
    """Return what is not done yet, with its recordings made."""
    names = ("target", "dtype", "nodes", "depth", "width", "problems", "tokens")
    settings = {name: getattr(arguments, name) for name in names}
    rows = [row for row in ROWS if row.name in arguments.rows]
    workshop, cells = Workshop(arguments), []
    for loss, workload, temperature, row in product(
        arguments.losses, arguments.workloads, arguments.temperatures, rows
    ):
        if temperature == 0 and row.is_greedy:  # there all drafts are
            continue
        heads = arguments.heads / loss
        key = {"loss": loss, "workload": workload, "temperature": temperature, "row": row.name}
        key |= {"settings": settings, "heads": digests(heads, row.heads)}
        if identity(key) not in done:
            recorded = workshop.recorded(workload, temperature)
            cells.append(_Cell(key, row, heads, recorded, workshop.states(recorded, LAST_LAYER)))
    return cells


def _run(cells: Sequence[_Cell], arguments: argparse.Namespace) -> Iterator[tuple[_Cell, JsonObject]]:
    """Yield the figures of cells as they come."""
    if arguments.jobs == 1:
        yield from ((cell, _figures(cell)) for cell in cells)
        return
    threads = arguments.threads or max(1, (os.cpu_count() or 1) // arguments.jobs)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, spawn, initializer=set_threads, initargs=(threads,)) as pool:
        running = {pool.submit(_figures, cell): cell for cell in cells}
        for future in as_completed(running):
            yield running[future], future.result()


def _figures(cell: _Cell) -> JsonObject:
    """Replay a cell."""
    started, settings = time.perf_counter(), cell.key["settings"]
    config = drafting(cell.row, cell.heads, settings["nodes"], settings["depth"], settings["width"])
    drafter = load_drafter(config, loaded_target(settings["target"], settings["dtype"]), is_shared=False)
    assert drafter is not None, "every row drafts"
    recording, states = Recording.load(cell.recorded), load_file(cell.states)
    measured, counts = MeasuredDrafter(drafter), defaultdict[str, _Count](_Count)
    for step in replayed(recording, measured, config.max_nodes, states):
        counts[problem_and_index(step.trajectory)[0]].add(step)
    return {
        "tau": measured.acceptance.tau,
        "nodes_a_step": measured.acceptance.nodes_a_step,
        "seconds": time.perf_counter() - started,
        "problems": {problem: asdict(count) for problem, count in counts.items()},
    }
