"""The parts of the benchmark that decode nothing: replays, overlap, the two verification rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Final

from tts_orch.bench.alternation import alternation_rows
from tts_orch.bench.methods import Method, ablations, chosen_methods, learns_from_rejected, trained_methods
from tts_orch.bench.offline_cells import coupling_rows, overlap_rows
from tts_orch.bench.plan import ALTERNATING, BenchPlan
from tts_orch.bench.replay_cells import ReplayCell, run_cells
from tts_orch.bench.results import ResultFolder
from tts_orch.bench.trees import write_trees
from tts_orch.config import DraftingConfig
from tts_orch.errors import ConfigError
from tts_orch.json_lines import JsonObject
from tts_orch.replay.recording import Recording

__all__ = ["OfflineParts"]

_TABLE_ENTRIES: Final = (1 << 20, 10_000)


@dataclass(frozen=True)
class OfflineParts:
    """Runs parts on the recordings of a folder.

    Args:
        plan: what to run.
        folder: where recordings are.
        report: told of every cell.
    """

    plan: BenchPlan
    folder: ResultFolder
    report: Callable[[str], None]

    @cached_property
    def trees(self) -> dict[str, Path]:
        """Files of the trees that are compared."""
        return dict(write_trees(self.folder.trees))

    @cached_property
    def cost_curve(self) -> tuple[tuple[int, float], ...]:
        """What passes cost where the recordings were made.

        Raises:
            ConfigError: nothing was recorded.
        """
        recorded = self.folder.read().get("record")
        if recorded is None:
            raise ConfigError(f"{self.folder.path}: nothing was recorded there; run the part `record` first")
        return tuple((rows, seconds) for rows, seconds in recorded["cost_curve"])

    def replay(self) -> JsonObject:
        """Return acceptance of every method that replay is exact for, over the whole matrix."""
        cells = [
            cell
            for temperature in self.plan.temperatures
            for workload in self.plan.workloads
            for method in (*chosen_methods(self.plan.methods), *trained_methods(self.plan.drafters))
            for cell in self._cells(method, workload, temperature)
        ]
        return {"rows": self._run(cells)}

    def _cells(self, method: Method, workload: str, temperature: float) -> Iterator[ReplayCell]:
        """Yield node counts one trajectory after another, and lockstep widths at the largest node count."""
        plan = self.plan
        if "drafters" in method.settings:  # not cheap enough for the whole matrix
            yield self.cell(method, (workload,), temperature, plan.compared_nodes)
            return
        if learns_from_rejected(method.config(plan.compared_nodes, self.trees)):
            return
        has_no_size = method.settings.get("node_budget") or method.settings["drafter"] == "none"
        sizes = [(n, 1) for n in ((plan.compared_nodes,) if has_no_size else plan.nodes)]
        if temperature > 0:
            sizes += [(plan.compared_nodes, width) for width in plan.lockstep if width > 1]
        for n_nodes, lockstep in sizes:
            yield self.cell(method, (workload,), temperature, n_nodes, lockstep)

    def cell(
        self, method: Method, workloads: Sequence[str], temperature: float, n_nodes: int, lockstep: int = 1
    ) -> ReplayCell:
        """Return a cell on the recordings of some workloads."""
        key = {
            "workload": "all" if len(workloads) > 1 else workloads[0],
            "temperature": temperature,
            "method": method.name,
            "label": method.label,
            "nodes": n_nodes,
            "lockstep": lockstep,
        }
        paths = tuple(self.folder.recording(self.plan, workload, temperature) for workload in workloads)
        return ReplayCell(paths, key, method.config(n_nodes, self.trees), lockstep, self.cost_curve, self.plan.target)

    def _run(self, cells: Sequence[ReplayCell]) -> list[JsonObject]:
        rows: list[JsonObject] = []
        for row in run_cells(cells, self.plan.workers or os.cpu_count() or 1):
            place = f"{row['workload']}, T={row['temperature']:g}, {row['label']}, {row['nodes']} nodes"
            self.report(f"{len(rows) + 1}/{len(cells)} {place}, lockstep {row['lockstep']}: tau {row['tau']:.2f}")
            rows.append(row)
        return rows

    def ablation(self) -> JsonObject:
        """Return acceptance with one choice changed at a time, at the highest temperature."""
        plan = self.plan
        cells: list[ReplayCell] = []
        for method in ablations():
            if learns_from_rejected(method.config(plan.compared_nodes, self.trees)):
                continue
            if method.name != "scope_run":
                cells += [self._ablated(method, (workload,)) for workload in plan.workloads]
            if method.name in ("default", "scope_run") and len(plan.workloads) > 1:
                cells.append(self._ablated(method, plan.workloads))
        return {"rows": self._run(cells)}

    def _ablated(self, method: Method, workloads: Sequence[str]) -> ReplayCell:
        return self.cell(method, workloads, self.plan.highest_temperature, self.plan.compared_nodes)

    def overlap(self) -> JsonObject:
        """Return n-gram overlap by trajectory index at the highest temperature."""
        rows = [overlap_rows(self._recording(workload), workload) for workload in self.plan.workloads]
        return {"rows": [row for rows_of_workload in rows for row in rows_of_workload]}

    def coupling(self) -> JsonObject:
        """Return acceptance of both verification rules by number of siblings at the highest temperature."""
        rows = []
        for workload in self.plan.workloads:
            rows += coupling_rows(self._recording(workload), workload)
            self.report(f"{workload}: keyed {rows[-1]['keyed']:.3f}, rejection {rows[-1]['rejection']:.3f}")
        return {"rows": rows}

    def _recording(self, workload: str) -> Recording:
        return Recording.load(self.folder.recording(self.plan, workload, self.plan.highest_temperature))

    def alternation(self) -> JsonObject:
        """Return tau of first and later trajectories while many problems take turns, and while they do not."""
        recording, rows = self._recording(ALTERNATING), []
        for scope, entries in product(("problem", "run"), _TABLE_ENTRIES):
            settings = {"statistics_scope": scope, "table_entries": entries, "node_budget": False}
            config = DraftingConfig(max_nodes=self.plan.compared_nodes, **settings)
            key = {"scope": scope, "table_entries": entries}
            rows += [{**key, **row} for row in alternation_rows(recording, config)]
        return {"rows": rows, "problems": len(recording.problem_ids), "trajectories": len(recording.trajectories)}
