"""Tokens a second of real decoding: plain, and with one head and each of its draft vocabularies, in turn on each problem."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Final

import numpy as np
from taps_parts.results import identity, read_results

from tts_orch.bench.decoding import Decoded, decode, new_decoder, request
from tts_orch.bench.intervals import ratio_interval
from tts_orch.bench.workloads import Prompt
from tts_orch.config import DraftingConfig
from tts_orch.drafters.loading import load_drafter
from tts_orch.engine.cost_model import CostModel
from tts_orch.engine.decoder import Decoder
from tts_orch.errors import RunError
from tts_orch.json_lines import JsonLinesFile, JsonObject
from tts_orch.records import SamplingParams
from vocabulary_parts.recordings import VocabularyWorkshop
from vocabulary_parts.ways import FULL, HOME, Way, drafting, ways

__all__ = ["PLAIN", "SPEEDS", "TREES", "speed"]

SPEEDS: Final = "speed.jsonl"
PLAIN: Final = "plain"
_FEWEST_SAMPLES: Final = 4
TREES: Final[Mapping[str, Mapping[str, Any]]] = {
    "budget": {"draft_depth": 5, "draft_width": 4},
    "8 nodes": {"node_budget": False, "max_nodes": 8, "draft_depth": 4, "draft_width": 2},
    "chain": {"node_budget": False, "max_nodes": 3, "draft_depth": 3, "draft_width": 1},
}
"""As many nodes as pay, and small trees whatever they cost: on a device whose rows are dear nothing larger could pay."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """Ways against each other.

    Attributes:
        key: what identifies the result.
        ways: one head with several vocabularies.
        workload: what is decoded,
        batch: so many trajectories at a time,
        trees: with which trees.
    """

    key: JsonObject
    ways: Sequence[Way]
    workload: str
    batch: int
    trees: str


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one way did with one problem: tokens and time, draft nodes, and the seconds that drafting them took."""

    decoded: Decoded
    nodes: int
    drafting: float


class _Runner:
    """A decoder of one way, with what it did problem by problem.

    Args:
        decoder: an idle one.
    """

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.turns: list[_Turn] = []

    def decode(self, prompt: Prompt, law: SamplingParams, batch: int) -> Decoded:
        """Decode a problem several times; its prompt is computed once."""
        n_samples = max(batch, _FEWEST_SAMPLES)
        wanted = [request(prompt, index, law, 0, prompt.problem_id) for index in range(n_samples)]
        before = dataclasses.replace(self._decoder.counters)
        decoded = decode(self._decoder, wanted, batch)
        self._decoder.close_scope(prompt.problem_id)
        after = self._decoder.counters
        self.turns.append(_Turn(decoded, after.draft_nodes - before.draft_nodes, after.draft_s - before.draft_s))
        return decoded

    @property
    def rates(self) -> list[float]:
        """Tokens a second of every problem but the first, which compiled and touched memory."""
        return [turn.decoded.rate for turn in self.turns[1:]]

    def figures(self, others: Mapping[str, _Runner], costs: CostModel) -> JsonObject:
        """Return what it did, with its speed against plain decoding and against the whole vocabulary."""
        turns = self.turns[1:]
        n_tokens = sum(turn.decoded.n_tokens for turn in turns)
        n_steps = sum(turn.decoded.verify_steps for turn in turns)
        seconds = sum(turn.decoded.seconds for turn in turns)
        passes = [n for turn in turns for n in turn.decoded.pass_rows]
        drafting, rows = sum(turn.drafting for turn in turns), float(np.median(passes))  # few passes read prompts
        compared = [name for name in (PLAIN, FULL) if name in others]
        return {
            "tokens_per_second": n_tokens / seconds,
            "against": {name: ratio_interval(self.rates, others[name].rates)._asdict() for name in compared},
            "tau": n_tokens / n_steps,
            "nodes_a_step": sum(turn.nodes for turn in turns) / n_steps,
            "rows": rows,
            "tv_over_t1": float(costs.seconds(rows) / costs.seconds(1.0)),
            "drafting_s_a_pass": drafting / len(passes),
            "drafting_share": drafting / seconds,
        }


def speed(arguments: argparse.Namespace) -> None:
    """Tokens a second of every head on the workloads of its domain, or on those that were asked for."""
    workshop, path = VocabularyWorkshop(arguments), arguments.out / SPEEDS
    done = {identity(result) for result in read_results(path)}
    results, costs = JsonLinesFile(path), workshop.target.measure_cost(max(arguments.batches))
    for cell in _cells(arguments, workshop):
        if identity(cell.key) not in done:
            results.append({**cell.key, **_measured(workshop, costs, cell)})
    results.close()


def _cells(arguments: argparse.Namespace, workshop: VocabularyWorkshop) -> list[_Cell]:
    names = ("target", "speed_problems", "speed_tokens")
    target = workshop.target
    settings = {name: getattr(arguments, name) for name in names}
    settings |= {"device": str(target.device), "dtype": str(target.dtype), "numerics": target.numerics}
    cells = []
    for (loss, head), group in groupby(ways(arguments, target), lambda way: (way.loss, way.head)):
        own = list(group)
        workloads = arguments.speed_workloads or HOME[head]
        for workload, batch, trees in product(workloads, arguments.batches, arguments.trees):
            key: JsonObject = {"loss": loss, "workload": workload, "temperature": arguments.speed_temperature}
            key |= {
                "row": f"{head}, batch {batch}, {trees}",
                "heads": {f"{head}, {way.vocabulary}": way.digest for way in own},
            }
            cells.append(_Cell({**key, "settings": settings}, own, workload, batch, trees))
    return cells


def _measured(workshop: VocabularyWorkshop, costs: CostModel, cell: _Cell) -> JsonObject:
    """Time all ways of a cell."""
    arguments = workshop.arguments
    law = workshop.law(cell.workload, cell.key["temperature"])
    law = dataclasses.replace(law, max_new_tokens=arguments.speed_tokens)
    prompts = workshop.prompts(cell.workload, arguments.speed_problems)
    configs = {name: DraftingConfig(drafter="none") for name in (PLAIN, "plain again")}
    configs |= {way.vocabulary: drafting(way, **TREES[cell.trees]) for way in cell.ways}
    runners = {name: _runner(workshop, costs, cell.batch, config) for name, config in configs.items()}
    for turn, prompt in enumerate([prompts[-1], *prompts]):
        names = [*runners][turn % len(runners) :] + [*runners][: turn % len(runners)]
        decoded = {name: runners[name].decode(prompt, law, cell.batch) for name in names}
        if any(one.outputs != decoded[PLAIN].outputs for one in decoded.values()):
            raise RunError(f"{prompt.problem_id}: tokens differ between drafters, which `bitwise` numerics rule out")
        rates = "  ".join(f"{name} {decoded[name].rate:.0f}" for name in runners)
        print(f"{cell.workload}, {cell.key['row']} {turn}/{len(prompts)}: {rates}", flush=True)
    sizes = {way.vocabulary: way.size for way in cell.ways}
    figures = {name: {"size": sizes.get(name), **one.figures(runners, costs)} for name, one in runners.items()}
    return {"batch": cell.batch, "trees": cell.trees, "ways": figures, "cost_curve": costs.table()}


def _runner(workshop: VocabularyWorkshop, costs: CostModel, batch: int, config: DraftingConfig) -> _Runner:
    drafter = load_drafter(config, workshop.target, is_shared=False)
    engine = workshop.config.model_copy(update=config.model_dump())
    return _Runner(new_decoder(workshop.target, drafter, engine, batch, costs))
