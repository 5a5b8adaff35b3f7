"""Acceptance length of every way by replay, problem by problem, and how much of what was said its vocabulary has."""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from typing import Final

from safetensors.torch import load_file
from taps_parts.replaying import replayed
from taps_parts.results import identity, read_results
from torch import Tensor

from tts_orch.drafters.checkpoint import read_head
from tts_orch.drafters.loading import load_drafter
from tts_orch.json_lines import JsonLinesFile, JsonObject
from tts_orch.replay.measured_drafter import MeasuredDrafter
from tts_orch.replay.recording import Recording, problem_and_index
from vocabulary_parts.coverage import covered
from vocabulary_parts.recordings import VocabularyWorkshop
from vocabulary_parts.ways import Way, drafting, ways

__all__ = ["RESULTS", "acceptance"]

RESULTS: Final = "acceptance.jsonl"
_SETTINGS: Final = ("target", "dtype", "nodes", "depth", "width", "problems", "tokens")


def acceptance(arguments: argparse.Namespace) -> None:
    """Acceptance length of every way by replay."""
    path = arguments.out / RESULTS
    done = {identity(result) for result in read_results(path)}
    workshop, results = VocabularyWorkshop(arguments), JsonLinesFile(path)
    settings = {name: getattr(arguments, name) for name in _SETTINGS}
    chosen = ways(arguments, workshop.target)
    for workload, temperature, way in product(arguments.workloads, arguments.temperatures, chosen):
        row = f"{way.head}, {way.vocabulary}"
        key = {"loss": way.loss, "workload": workload, "temperature": temperature, "row": row}
        key |= {"settings": settings, "heads": {row: way.digest}}
        if identity(key) in done:
            continue
        recorded = workshop.recorded(workload, temperature)
        states = load_file(workshop.states(recorded, way.layers))
        figures = _figures(way, Recording.load(recorded), states, workshop)
        results.append({**key, "size": way.size, **figures})
        print(f"{workload} T={temperature:g} {way.loss} {row}: tau {figures['tau']:.3f}", flush=True)
    results.close()


def _figures(way: Way, recording: Recording, states: Mapping[str, Tensor], workshop: VocabularyWorkshop) -> JsonObject:
    """Replay a way on a recording."""
    arguments = workshop.arguments
    size = {"node_budget": False, "max_nodes": arguments.nodes}
    config = drafting(way, **size, draft_depth=arguments.depth, draft_width=arguments.width)
    drafter = load_drafter(config, workshop.target, is_shared=False)
    assert drafter is not None, "every way has a head"
    measured = MeasuredDrafter(drafter)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for step in replayed(recording, measured, arguments.nodes, states):
        count = counts[problem_and_index(step.trajectory)[0]]
        count[0] += len(step.committed)
        count[1] += 1
    vocabulary = read_head(way.folder).vocabulary
    return {
        "tau": measured.acceptance.tau,
        "nodes_a_step": measured.acceptance.nodes_a_step,
        "covered": 1.0 if vocabulary is None else covered(vocabulary, recording),
        "problems": dict(counts),
    }
