"""Tables of what was measured: acceptance length by row and workload, differences with intervals, choices, speed."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from taps_parts.acceptance import RESULTS
from taps_parts.results import comparable, read_results
from taps_parts.rows import HINDSIGHTS, ROWS
from taps_parts.speed import SPEEDS
from tts_orch.bench.markdown import Cell, table
from tts_orch.json_lines import JsonObject
from tts_orch.policies.routing.hindsight import chosen_in_hindsight

__all__ = ["tables"]

_DRAWS: Final = 4000
_COMPARED: Final = (
    ("math", "chat"),
    ("math", "averaged"),
    ("chat", "averaged"),
    ("code", "chat"),
    ("double", "mixed"),
    ("confidence", "math"),
    ("confidence", "chat"),
    ("confidence", "mixed"),
    ("confidence", "entropy"),
    ("merged", "confidence"),
    ("merged", "chat"),
    ("merged", "double"),
    ("confidence of three", "confidence"),
    ("merged of three", "merged"),
    ("stand + routed", "stand"),
    ("stand + merged", "merged"),
    ("concatenated", "merged"),
)
"""Pairs whose order the paper states, who is better at home, and what twice the data or twice the nodes give."""

_CHOOSING: Final = ("confidence", "entropy", "expected_tokens")
"""Routings that take one tree."""

Problems = dict[str, JsonObject]


def tables(arguments: argparse.Namespace) -> None:
    """Print everything that was measured into --out so far: a table for each of its settings."""
    for cell, n_outdated in comparable(read_results(arguments.out / RESULTS)):
        loss, temperature, settings = (cell[0][name] for name in ("loss", "temperature", "settings"))
        print(f"### {loss}, T = {temperature:g}\n\n{_said(settings)}\n\n{_acceptance(cell)}\n{_differences(cell)}")
        print(f"Who was chosen:\n\n{_choices(cell)}")
        if n_outdated:
            print(f"Left out: {n_outdated} results of heads that have other weights by now.\n")
    for result in read_results(arguments.out / SPEEDS):
        print(_speeds(result))


def _said(settings: Mapping[str, object]) -> str:
    return ", ".join(f"{name.removeprefix('speed_')} {value}" for name, value in settings.items())


def _by_row(cell: Sequence[JsonObject]) -> dict[str, dict[str, JsonObject]]:
    """Return results by row and workload, those in hindsight among them."""
    rows: dict[str, dict[str, JsonObject]] = {}
    for result in cell:
        rows.setdefault(result["row"], {})[result["workload"]] = result
    alone = {name: rows[name] for name in ("math", "chat", "mixed") if name in rows}
    if len(alone) == 3:
        for row, mixed in HINDSIGHTS.items():
            rows[row] = {
                workload: _in_hindsight({name: results[workload] for name, results in alone.items()}, mixed)
                for workload in alone["math"]
                if all(workload in results for results in alone.values())
            }
    return rows


def _in_hindsight(alone: Mapping[str, JsonObject], mixed: str | None) -> JsonObject:
    """Return, question by question, what the drafter that was surer did alone, and how often each was."""
    problems, chosen = {}, Counter[str]()
    for problem in alone["math"]["problems"]:
        counts = {name: result["problems"][problem] for name, result in alone.items()}
        sure = {name: counts[name]["confidence"] / counts[name]["steps"] for name in ("math", "chat")}
        name = chosen_in_hindsight(sure, mixed)
        problems[problem] = counts[name]
        chosen[name] += 1
    return {"problems": problems, "chosen": chosen}


def _acceptance(cell: Sequence[JsonObject]) -> str:
    rows, workloads = _by_row(cell), list(dict.fromkeys(result["workload"] for result in cell))
    order = [name for name in (*(row.name for row in ROWS), *HINDSIGHTS) if name in rows]
    lines: list[list[Cell]] = []
    for name in order:
        results = [rows[name].get(workload) for workload in workloads]
        taus = [None if result is None else _tau(result["problems"].values()) for result in results]
        known = [tau for tau in taus if tau is not None]
        sizes = [result["nodes_a_step"] for result in results if result is not None and "nodes_a_step" in result]
        mean = sum(known) / len(known) if len(known) == len(taus) else None
        lines.append([name, *taus, mean, float(np.mean(sizes)) if sizes else None])
    return table(["drafts", *workloads, "mean tau", "nodes"], lines)


def _tau(counts: Iterable[JsonObject]) -> float:
    """Return committed tokens a verify step."""
    counts = list(counts)
    return sum(count["committed"] for count in counts) / sum(count["steps"] for count in counts)


def _differences(cell: Sequence[JsonObject]) -> str:
    """Return paired differences of tau, with 95 % bootstrap intervals over problems, by workload and of the mean."""
    rows, workloads = _by_row(cell), list(dict.fromkeys(result["workload"] for result in cell))
    parts = [*([workload] for workload in workloads), workloads]
    lines: list[list[Cell]] = [
        [f"{better} - {worse}", *(_difference(rows[better], rows[worse], part) for part in parts)]
        for better, worse in _COMPARED
        if better in rows and worse in rows
    ]
    return table(["difference of tau [95 %]", *workloads, "mean"], lines)


def _difference(
    better: Mapping[str, JsonObject], worse: Mapping[str, JsonObject], workloads: Sequence[str]
) -> str | None:
    """Return the difference of the mean tau over workloads with its interval, None where one was not measured."""
    if not better.keys() & worse.keys() >= set(workloads):
        return None
    generator = np.random.default_rng(0)
    draws, means = np.zeros(_DRAWS), 0.0
    for workload in workloads:
        ours, theirs = _columns(better[workload]["problems"]), _columns(worse[workload]["problems"])
        places = generator.integers(len(ours), size=(_DRAWS, len(ours)))
        draws += _ratio(ours[places]) - _ratio(theirs[places])
        means += float(_ratio(ours) - _ratio(theirs))
    low, high = np.quantile(draws / len(workloads), (0.025, 0.975))
    return f"{means / len(workloads):+.3f} [{low:+.3f}, {high:+.3f}]"


def _columns(problems: Problems) -> NDArray[np.float64]:
    """Return `[n, 2]` committed tokens and verify steps, problems in one order."""
    return np.array([[problems[name]["committed"], problems[name]["steps"]] for name in sorted(problems)], np.float64)


def _ratio(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    totals = columns.sum(axis=-2)
    return totals[..., 0] / totals[..., 1]


def _choices(cell: Sequence[JsonObject]) -> str:
    lines = []
    for row in ROWS:
        for result in cell:
            if result["row"] == row.name and row.settings.get("routing") in _CHOOSING:
                chosen: Counter[str] = Counter()
                for problem in result["problems"].values():
                    chosen.update({row.members[int(member)]: n for member, n in problem["member_steps"].items()})
                lines.append([f"{row.name}, steps", result["workload"], _shares(chosen)])
    rows = _by_row(cell)
    for row in HINDSIGHTS:
        for workload, result in rows.get(row, {}).items():
            lines.append([f"{row}, questions", workload, _shares(result["chosen"])])
    return table(["routing", "workload", "chosen"], lines)


def _shares(chosen: Counter[str]) -> str:
    return ", ".join(f"{name} {n / chosen.total():.1%}" for name, n in chosen.most_common())


def _speeds(result: JsonObject) -> str:
    lines: list[list[Cell]] = []
    for name, way in result["ways"].items():
        ratio = way["ratio"]
        against = f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]"
        lines.append([name, way["tokens_per_second"], against, way["tau"], way["rows"], result["tv_over_t1"][name]])
    heads = ", ".join(f"{name} {digest}" for name, digest in result["heads"].items())
    title = f"### {result['workload']}, {result['loss']} heads ({heads})\n\n"
    place = f"{_said(result['settings'])}, {result['dtype']}, {result['device']}, 1 node\n\n"
    header = ["drafts", "tokens/s", "against plain [95 %]", "tau", "rows a pass", "Tv/T1"]
    return title + place + table(header, lines)
