"""DVTS with drafts beside the same search without: same seeds, same answers, how much faster.

    python benchmarks/dvts.py --target smollm2 --problems problems.jsonl --reward reward_model/ --pairs 10

Every problem is searched by every variant before the next one, in an order that turns, so that a busy machine hits all alike;
each variant has decoder and reward model of its own. Printed and saved: generated tokens a second of each variant, the ratio
with a bootstrap interval over problems, the A/A band (the same variant twice), tau, what a pass of more rows costs, prompt
and prefix tokens that forking did not compute again, and the share of the time in the reward model.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from tts_orch import DVTS, Orchestrator
from tts_orch.bench.intervals import ratio_interval
from tts_orch.config import EngineConfig, LawConfig
from tts_orch.engine.target import load_target
from tts_orch.engine.threads import n_threads
from tts_orch.placement_config import PlacementConfig
from tts_orch.records import Problem, SearchResult
from tts_orch.reward_config import RewardConfig
from tts_orch.tasks.problems import read_problems

_VARIANTS = {"stand": "stand", "plain": "none", "plain again": "none"}


@dataclass(frozen=True)
class Measurement:
    """One search of one problem: its wall time, and what the counters of decoder and reward model went up by."""

    seconds: float
    generated_tokens: int
    counters: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Generated tokens a second, the reward model's time included."""
        return self.generated_tokens / self.seconds


def searched(
    orchestrator: Orchestrator, problem: Problem, method: DVTS, law: LawConfig
) -> tuple[SearchResult, Measurement]:
    """Search a problem and take the time."""
    before, started = orchestrator.statistics(), time.perf_counter()
    result = orchestrator.search(problem, method, seed=0, law=law)
    seconds, after = time.perf_counter() - started, orchestrator.statistics()
    counters = {name: after[name] - before.get(name, 0) for name in after}
    return result, Measurement(seconds, result.generated_tokens, counters)


def found(result: SearchResult) -> list[tuple[object, ...]]:
    """Return what must be equal in all variants."""
    return [(result.answer, result.generated_tokens), *((one.path, one.token_ids) for one in result.candidates)]


def summarise(
    measured: Mapping[str, Sequence[Measurement]], same: bool, costs: Mapping[int, float]
) -> dict[str, object]:
    """Return all figures by name."""
    rates = {name: [one.rate for one in of_variant] for name, of_variant in measured.items()}
    totals = {
        name: {key: sum(one.counters.get(key, 0) for one in of_variant) for key in of_variant[0].counters}
        for name, of_variant in measured.items()
    }
    seconds = {name: sum(one.seconds for one in of_variant) for name, of_variant in measured.items()}
    generated = {name: sum(one.generated_tokens for one in of_variant) for name, of_variant in measured.items()}
    stand = totals["stand"]
    return {
        "machine": f"{platform.machine()}, {n_threads()} threads, torch {torch.__version__}, float32, 1 node",
        "problems": len(measured["stand"]),
        "same_tokens_and_answers": same,
        "tokens_per_second": {name: round(generated[name] / seconds[name], 1) for name in measured},
        "ratio_of_totals": round(generated["stand"] / seconds["stand"] / (generated["plain"] / seconds["plain"]), 3),
        "median_ratio": ratio_interval(rates["stand"], rates["plain"])._asdict(),
        "a_a_band": ratio_interval(rates["plain again"], rates["plain"])._asdict(),
        "tau": {name: round(one["committed_tokens"] / one["verify_steps"], 3) for name, one in totals.items()},
        "rows_a_pass": {
            name: round((one["verify_steps"] + one["draft_nodes"]) / one["passes"], 1) for name, one in totals.items()
        },
        "Tv/T1": {rows: round(cost / costs[1], 2) for rows, cost in costs.items()},
        "prefill_tokens": {name: int(one["prefill_tokens"]) for name, one in totals.items()},
        "tokens_not_prefilled_again": {name: int(one["cached_tokens"]) for name, one in totals.items()},
        "reward_tokens_read": int(stand.get("reward_tokens", 0)),
        "reward_tokens_of_full_rescores": int(stand.get("reward_tokens_whole", 0)),
        "reward_share_of_time": {
            name: round(one.get("reward_seconds", 0.0) / seconds[name], 3) for name, one in totals.items()
        },
        "pairs": {name: [asdict(one) for one in of_variant] for name, of_variant in measured.items()},
    }


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="smollm2")
    parser.add_argument("--problems", type=Path, required=True)
    parser.add_argument("--reward", required=True, help="reward model, as for tts-orch run --reward-model")
    parser.add_argument("--pairs", type=int, default=10, help="problems; each is one pair of every two variants")
    parser.add_argument("-n", type=int, default=16)
    parser.add_argument("--beam-width", type=int, default=4)
    parser.add_argument("--delimiter", default="\n\n")
    parser.add_argument("--template", default="auto", choices=["auto", "raw", "chat"])
    parser.add_argument("--stop", action="append", default=[])
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--out", type=Path, default=None, help="JSON file for the figures")
    arguments = parser.parse_args()
    delimiter = arguments.delimiter.encode().decode("unicode_escape")
    method = DVTS(n=arguments.n, beam_width=arguments.beam_width, delimiters=(delimiter,))
    stops = tuple(stop.encode().decode("unicode_escape") for stop in arguments.stop)
    law = LawConfig(temperature=0.7, max_new_tokens=arguments.max_new_tokens, stop=stops)
    problems = read_problems(arguments.problems)[: arguments.pairs + 1]
    reward = RewardConfig(model=arguments.reward)
    curve = load_target(EngineConfig(target=arguments.target)).measure_cost(arguments.n)
    costs = {rows: float(curve.seconds(rows)) for rows in (1, arguments.n, 2 * arguments.n)}
    measured: dict[str, list[Measurement]] = {name: [] for name in _VARIANTS}
    same = True
    with ExitStack() as opened:
        orchestrators = {
            name: opened.enter_context(
                Orchestrator(
                    engine=EngineConfig(
                        target=arguments.target,
                        drafter=drafter,
                        max_batch=arguments.n,
                        kv_memory_gib=1.0,
                        threads=n_threads(),
                    ),
                    workers=1,
                    placement=PlacementConfig(cpus_per_worker=1 / len(_VARIANTS)),  # they take turns on all cores
                    template=arguments.template,
                    reward=reward,
                )
            )
            for name, drafter in _VARIANTS.items()
        }
        for orchestrator in orchestrators.values():  # compile, allocate, touch memory
            searched(orchestrator, problems[-1], method, law)
        for turn, problem in enumerate(problems[: arguments.pairs]):
            names = list(_VARIANTS)
            results = {}
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                results[name], measurement = searched(orchestrators[name], problem, method, law)
                measured[name].append(measurement)
            same &= all(found(result) == found(results["plain"]) for result in results.values())
            line = "  ".join(f"{name} {measured[name][-1].rate:.0f}" for name in names)
            print(f"{turn + 1}/{arguments.pairs} {problem.id}: tokens/s {line}", flush=True)
    summary = summarise(measured, same, costs)
    print(json.dumps({key: value for key, value in summary.items() if key != "pairs"}, indent=2))
    if arguments.out:
        arguments.out.write_text(json.dumps(summary, indent=2))
    if not same:
        raise SystemExit("tokens or answers differ between drafts and plain decoding")


if __name__ == "__main__":
    main()
