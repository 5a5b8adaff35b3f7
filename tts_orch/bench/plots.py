"""Results of a benchmark as curves, PNG files."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tts_orch.bench.plan import Part
from tts_orch.figures import load_figures
from tts_orch.json_lines import JsonObject

__all__ = ["draw_plots"]

Results = Mapping[Part, JsonObject]

_MOST_COLUMNS: Final = 3
_COLOURS: Final = 10


def draw_plots(results: Results, folder: Path) -> list[Path]:
    """Draw what there are results for and return the files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    figures = load_figures()
    files = []
    for name, (part, draw) in _PLOTS.items():
        if part in results:
            figure = figures.Figure(figsize=(10, 5), layout="constrained")
            draw(figure, results[part])
            _legend(figure)
            figure.suptitle(_origin(results), fontsize=8)
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=150)
    return files


def _legend(figure: Any) -> None:
    """Name the curves of all panels once, beside them."""
    named = [axes.get_legend_handles_labels() for axes in figure.axes]
    by_label = {label: handle for panel in named for handle, label in zip(*panel, strict=True)}
    figure.legend(by_label.values(), by_label, loc="outside right center", fontsize=8)


def _origin(results: Results) -> str:
    """Return what the results were measured on, as far as it is known."""
    known = results.get("record") or results.get("timing")
    return "{target} on {device}, {dtype}, numerics {numerics}".format(**known) if known else ""


def _tau_by_index(figure: Any, result: JsonObject) -> None:
    axes = figure.subplots()
    for label, rows in _largest(result):
        _draw_mean(axes, [row["tau_by_index"] for row in rows], math.nan, label=label)
    title = f"tau by trajectory index, at most {_most_nodes(result)} nodes, mean over workloads"
    _name(axes, "trajectory", "tau", title)


def _tau_by_index_real(figure: Any, result: JsonObject) -> None:
    """Draw a panel a workload: real runs in whole lines, replays of the same problems in dashes."""
    most, looks = _most_nodes(result), _looks(result["rows"])
    workloads = list(dict.fromkeys(row["workload"] for row in result["rows"]))
    for axes, workload in zip(_panels(figure, len(workloads)), workloads, strict=True):
        for row in result["rows"]:
            if row["workload"] == workload and row["nodes"] == most:
                _draw_mean(axes, [row["tau_by_index"]], math.nan, label=row["label"], **looks[row["label"]])
        _name(axes, "trajectory (dashes: by replay)", "tau", f"{workload}, at most {most} nodes")


def _panels(figure: Any, n: int) -> list[Any]:
    """Return the axes of `n` panels of one scale."""
    n_columns = min(n, _MOST_COLUMNS)
    n_rows = -(-n // n_columns)
    figure.set_size_inches(4 + 5 * n_columns, 5 * n_rows)
    panels = figure.subplots(n_rows, n_columns, sharey=True, squeeze=False).flat
    for unused in panels[n:]:
        unused.remove()
    return list(panels[:n])


def _looks(rows: Sequence[JsonObject]) -> dict[str, dict[str, str]]:
    """Return what each method's curve looks like, the same in all panels."""
    looks: dict[str, dict[str, str]] = {}
    for is_real, style in ((True, "-"), (False, "--")):
        labels = dict.fromkeys(row["label"] for row in rows if row["is_real"] == is_real)
        for place, label in enumerate(labels):
            looks[label] = {"linestyle": style, "color": f"C{place % _COLOURS}"}
    return looks


def _tau_by_nodes(figure: Any, result: JsonObject) -> None:
    axes = figure.subplots()
    drafted = (row for row in _hottest(result) if row["lockstep"] == 1 and row["draft_nodes"])
    for label, rows in _by_label(drafted):
        nodes = sorted({row["nodes"] for row in rows})
        if len(nodes) == 1:  # as many as paid
            axes.plot(
                np.mean([row["nodes_a_step"] for row in rows]), np.mean([row["tau"] for row in rows]), "*", label=label
            )
            continue
        axes.plot(
            nodes, [np.mean([row["tau"] for row in rows if row["nodes"] == n]) for n in nodes], label=label, marker="o"
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    _name(axes, "nodes", "tau", "tau by nodes, mean over workloads")


def _acceptance_by_depth(figure: Any, result: JsonObject) -> None:
    axes = figure.subplots()
    for label, rows in _largest(result):
        _draw_mean(axes, [row["acceptance_at_depth"] for row in rows], 0.0, label=label)
    title = f"acceptance by depth, at most {_most_nodes(result)} nodes, mean over workloads"
    _name(axes, "depth", "P(accepted length >= depth)", title)


def _overlap(figure: Any, result: JsonObject) -> None:
    axes = figure.subplots()
    for order in sorted({row["order"] for row in result["rows"]}):
        curves = [row["by_index"] for row in result["rows"] if row["order"] == order]
        _draw_mean(axes, curves, math.nan, label=f"n = {order}")
    _name(axes, "trajectory", "share said before", "n-gram overlap with the prompt and earlier trajectories")


def _speed(figure: Any, result: JsonObject) -> None:
    axes = figure.subplots()
    rows = list(reversed(result["rows"]))
    places = np.arange(len(rows))
    for offset, key, label in ((0.2, "median_ratio", "with drafts / plain"), (-0.2, "a_a_band", "plain / plain")):
        middle, low, high = (np.array([row[key][bound] for row in rows]) for bound in ("median", "low", "high"))
        axes.barh(places + offset, middle, 0.38, xerr=(middle - low, high - middle), label=label)
    axes.set_yticks(places, [row["label"] for row in rows])
    axes.axvline(1, color="black", linewidth=0.8)
    _name(axes, "ratio of tokens/s, 95 % interval over problems", "", "speed")


_PLOTS: Final[Mapping[str, tuple[Part, Callable[[Any, JsonObject], None]]]] = {
    "tau_by_index": ("replay", _tau_by_index),
    "tau_by_index_real": ("real", _tau_by_index_real),
    "tau_by_nodes": ("replay", _tau_by_nodes),
    "acceptance_by_depth": ("replay", _acceptance_by_depth),
    "ngram_overlap": ("overlap", _overlap),
    "speed": ("timing", _speed),
}


def _hottest(result: JsonObject) -> list[JsonObject]:
    """Return the rows at the highest temperature."""
    temperature = max(row["temperature"] for row in result["rows"])
    return [row for row in result["rows"] if row["temperature"] == temperature]


def _most_nodes(result: JsonObject) -> int:
    return max(int(row["nodes"]) for row in result["rows"])


def _largest(result: JsonObject) -> Iterator[tuple[str, list[JsonObject]]]:
    """Yield the rows of each method with most nodes, one trajectory after another."""
    rows = _hottest(result)
    most = _most_nodes(result)
    yield from _by_label(row for row in rows if row["nodes"] == most and row["lockstep"] == 1)


def _by_label(rows: Iterable[JsonObject]) -> Iterator[tuple[str, list[JsonObject]]]:
    groups: dict[str, list[JsonObject]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    yield from groups.items()


def _draw_mean(axes: Any, curves: Sequence[Sequence[float]], beyond: float, **look: str) -> None:
    """Draw the mean of curves, the first place as 1; behind their ends they are `beyond`, which does not count if NaN."""
    padded = np.full((len(curves), max(map(len, curves))), beyond)
    for row, curve in zip(padded, curves, strict=True):
        row[: len(curve)] = curve
    axes.plot(range(1, padded.shape[1] + 1), np.nanmean(padded, axis=0), marker="o", markersize=3, **look)


def _name(axes: Any, x: str, y: str, title: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
