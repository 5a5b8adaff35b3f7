"""Acceptance length of every row by replay, problem by problem, with what drafting took and what a pass would."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import torch

from taps_parts.recordings import Workshop
from taps_parts.rows import ROWS, Row, drafting
from tts_orch.drafters.loading import load_drafter
from tts_orch.errors import RunFolderError
from tts_orch.json_lines import JsonLinesFile, JsonObject, read_json_lines
from tts_orch.policies.drafting.composed_kinds import member_of_source
from tts_orch.policies.drafting.draft_size import FixedSize
from tts_orch.policies.drafting.draft_tree import VerifiedStep
from tts_orch.policies.routing.tree_confidence import confidence
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import Recording, problem_and_index
from tts_orch.replay.replayer import replay

__all__ = ["RESULTS", "acceptance"]

RESULTS: Final = "acceptance.jsonl"


@dataclass(slots=True)
class _Count:
    """What became of one problem.

    Attributes:
        committed: tokens.
        steps: verify steps.
        nodes: draft nodes.
        confidence: sum over verify steps of the verified tree's confidence.
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
        self.confidence += confidence(step.tree)
        members = [member_of_source(source) for source in step.tree.source[1:].tolist()]
        if members:
            member = max(set(members), key=members.count)
            self.member_steps[member] = self.member_steps.get(member, 0) + 1


def acceptance(arguments: argparse.Namespace) -> None:
    """Acceptance length of every row by replay, with the time that drafting takes."""
    workshop, path = Workshop(arguments), arguments.out / RESULTS
    trees = {"nodes": arguments.nodes, "depth": arguments.depth, "width": arguments.width}
    done = _done(path, trees)
    results, costs = JsonLinesFile(path), workshop.target.measure_cost(1).table()
    for workload, temperature, recording in workshop.recordings():
        missing = [
            (loss, row)
            for loss in arguments.losses
            for row in ROWS
            if row.name in arguments.rows
            and (temperature > 0 or not row.is_greedy)  # at temperature 0 all drafts are
            and (workload, temperature, loss, row.name) not in done
        ]
        features = workshop.features(recording) if missing else {}
        for loss, row in missing:
            figures = _replayed(workshop, recording, features, arguments.heads / loss, row)
            key = {"workload": workload, "temperature": temperature, "loss": loss, "row": row.name}
            results.append({**key, "trees": trees, **figures, "cost_curve": costs})
            print(f"{workload} T={temperature:g} {loss} {row.name}: tau {figures['tau']:.2f}", flush=True)
    results.close()


def _done(path: Path, trees: JsonObject) -> set[tuple[str, float, str, str]]:
    """Return what was measured before, with trees of the same size."""
    results = [line.values for line in read_json_lines(path)]
    if any(result["trees"] != trees for result in results):
        raise RunFolderError(f"{path}: measured with trees of another size than {trees}; take another --out")
    return {(result["workload"], result["temperature"], result["loss"], result["row"]) for result in results}


def _replayed(
    workshop: Workshop, recording: Recording, features: dict[str, torch.Tensor], heads: Path, row: Row
) -> JsonObject:
    arguments = workshop.arguments
    config = drafting(row, heads, arguments.nodes, arguments.depth, arguments.width)
    drafter = load_drafter(config, workshop.target, is_shared=False)
    assert drafter is not None, "every row has a head"
    measured = MeasuredDrafter(drafter)
    counts: dict[str, _Count] = defaultdict(_Count)
    for step in _steps(recording, measured, config.max_nodes, features):
        counts[problem_and_index(step.trajectory)[0]].add(step)
    return {
        "tau": measured.acceptance.tau,
        "nodes_a_step": measured.acceptance.nodes_a_step,
        "drafting_s": measured.drafting.seconds / max(1, measured.acceptance.total.verify_steps - 1),
        "problems": {problem: asdict(count) for problem, count in counts.items()},
    }


def _steps(
    recording: Recording, drafter: MeasuredDrafter, n_nodes: int, features: dict[str, torch.Tensor]
) -> Iterator[VerifiedStep]:
    for steps in replay(recording, drafter, FixedSize(n_nodes), features=lambda one: features[one.name]):
        yield from steps
