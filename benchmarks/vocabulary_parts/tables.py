"""Tables of what was measured: sizes and coverage, acceptance length, seconds of a level, speed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from taps_parts.results import comparable, read_results

from tts_orch.bench.markdown import Cell, pivot, table
from tts_orch.json_lines import JsonObject
from vocabulary_parts.acceptance import RESULTS
from vocabulary_parts.choices import CHOICES
from vocabulary_parts.coverage import COVERAGE
from vocabulary_parts.levels import LEVELS
from vocabulary_parts.sizes import SIZES
from vocabulary_parts.speed import SPEEDS
from vocabulary_parts.ways import FULL

__all__ = ["tables"]

_DRAWS: Final = 4000


def tables(arguments: argparse.Namespace) -> None:
    """Print everything that was measured into --out so far."""
    for name, text in ((CHOICES, _choices), (COVERAGE, _coverage)):
        path = arguments.out / name
        if path.exists():
            print(text(json.loads(path.read_text())))
    for cell in _cells(arguments.out / RESULTS, "acceptance"):
        print(_acceptance(cell))
    for cell in _cells(arguments.out / LEVELS, "a drafted level"):
        print(_levels(cell))
    for cell in _cells(arguments.out / SIZES, "sizes"):
        print("\n".join(_sizes(result) for result in cell))
    for cell in _cells(arguments.out / SPEEDS, "speed"):
        print("\n".join(_speeds(result) for result in cell))


def _cells(path: Path, title: str) -> Iterator[list[JsonObject]]:
    """Yield what may stand in one table, under a heading that says what it was measured with."""
    for cell, n_older in comparable(read_results(path)):
        settings = ", ".join(f"{name} {value}" for name, value in cell[0]["settings"].items())
        temperature = cell[0]["temperature"]
        law = "" if temperature is None else f", T = {temperature:g}"
        older = f"; {n_older} results of other weights left out" if n_older else ""
        print(f"### {title}, {cell[0]['loss']}{law}\n\n{settings}{older}\n")
        yield cell


def _choices(content: Mapping[str, Any]) -> str:
    sizes = [
        [*(row[name] for name in ("corpus", "samples", "tokens", "distinct", "scan", "tpe")), *_percent(row)]
        for row in content["sizes"]
    ]
    header = ["corpus", "samples", "tokens", "distinct", "k, scan", "k, TPE", "TPE below scan, %"]
    operations = [
        [row["name"], *(row[part] / 1e6 for part in ("projection", "attention", "mlp", "head", "total"))]
        for row in content["operations"]
    ]
    return "\n".join(
        [
            f"### sizes, alpha {content['alpha']:g}\n",
            table([*header, "coverage, %", "saving, %"], sizes),
            "Operations of drafting a token with all tokens, millions:\n",
            table(["head of", "projection", "attention", "MLP", "LM head", "all"], operations, digits=1),
        ]
    )


def _coverage(rows: Sequence[Mapping[str, Any]]) -> str:
    cells = [
        {
            "vocabulary": f"{row['vocabulary']}, {row['size']}",
            "said": f"{row['workload']}, T={row['temperature']:g}",
            "coverage": 100 * row["coverage"],
        }
        for row in rows
    ]
    title = "### Share of what the target says that a vocabulary has, %\n\n"
    return title + pivot(cells, "vocabulary", "said", "coverage", digits=1)


def _percent(row: Mapping[str, Any]) -> list[Cell]:
    return [f"{100 * row['gap']:.3f}", 100 * row["coverage"], 100 * row["saving"]]


def _acceptance(cell: Sequence[JsonObject]) -> str:
    """Return tau by way and workload, and what is left of the whole vocabulary's, with 95 % intervals over problems."""
    rows: dict[str, dict[str, JsonObject]] = {}
    for result in cell:
        rows.setdefault(result["row"], {})[result["workload"]] = result
    workloads = list(dict.fromkeys(result["workload"] for result in cell))
    taus: list[list[Cell]] = []
    kept: list[list[Cell]] = []
    for row, results in rows.items():
        size = next(iter(results.values()))["size"]
        head, _, vocabulary = row.partition(", ")
        taus.append([row, size, *(results[name]["tau"] if name in results else None for name in workloads)])
        if vocabulary != FULL:
            whole = rows.get(f"{head}, {FULL}", {})
            kept.append([row, size, *(_kept(results.get(name), whole.get(name)) for name in workloads)])
    return f"{table(['tau', 'k', *workloads], taus)}\n{table(['share of tau [95 %], covered', 'k', *workloads], kept)}"


def _kept(result: JsonObject | None, whole: JsonObject | None) -> str | None:
    """Return the share of the whole vocabulary's tau that is left, and the share of tokens that could be proposed."""
    if result is None or whole is None:
        return None
    ours, theirs = _columns(result), _columns(whole)
    places = np.random.default_rng(0).integers(len(ours), size=(_DRAWS, len(ours)))
    low, high = np.quantile(_tau(ours[places]) / _tau(theirs[places]), (0.025, 0.975))
    share = float(_tau(ours) / _tau(theirs))
    return f"{share:.3f} [{low:.3f}, {high:.3f}], {result['covered']:.1%}"


def _columns(result: JsonObject) -> NDArray[np.float64]:
    """Return `[n, 2]` committed tokens and verify steps, problems in one order."""
    return np.array([result["problems"][name] for name in sorted(result["problems"])], np.float64)


def _tau(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    totals = columns.sum(axis=-2)
    return np.asarray(totals[..., 0] / totals[..., 1])


def _levels(cell: Sequence[JsonObject]) -> str:
    shapes = [f"{shape['texts']} x {shape['width']}" for shape in cell[0]["shapes"]]
    rows = [[result["row"], result["size"], *map(_level, result["shapes"])] for result in cell]
    return table(["milliseconds a level (LM head, choice), trajectories x nodes", "k", *shapes], rows)


def _level(shape: Mapping[str, float]) -> str:
    return f"{1e3 * shape['level']:.2f} ({shape['head'] / shape['level']:.0%}, {shape['choice'] / shape['level']:.0%})"


def _sizes(result: JsonObject) -> str:
    rows = [
        [one["size"], one["tau"], 1e3 * one["level_seconds"], 1e3 * one["verify_seconds"], one["tokens_per_second"]]
        for one in result["sizes"]
    ]
    return f"{result['row']} head, {result['workload']}\n\n" + table(
        ["k", "tau", "drafting a level, ms", "verifying, ms", "tokens/s"], rows
    )


def _speeds(result: JsonObject) -> str:
    rows = []
    for name, way in result["ways"].items():
        against = [_interval(way["against"].get(other)) for other in ("plain", FULL)]
        drafting = [1e3 * way["drafting_s_a_pass"], f"{way['drafting_share']:.0%}"]
        shape = [way["tau"], way["nodes_a_step"], way["rows"], way["tv_over_t1"]]
        rows.append([name, way["size"], way["tokens_per_second"], *against, *shape, *drafting])
    header = ["drafts", "k", "tokens/s", "against plain [95 %]", "against the whole vocabulary", "tau", "nodes a step"]
    title = f"{result['row']}, {result['workload']}\n\n"
    return title + table([*header, "rows a pass", "Tv/T1", "drafting a pass, ms", "drafting, share"], rows)


def _interval(ratio: Mapping[str, float] | None) -> str | None:
    return f"{ratio['median']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" if ratio else None
