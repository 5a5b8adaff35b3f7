"""Results of a benchmark as curves, PNG files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tts_orch.bench.plan import Part
from tts_orch.errors import ConfigError
from tts_orch.json_lines import JsonObject

__all__ = ["draw_plots"]

Results = Mapping[Part, JsonObject]


def draw_plots(results: Results, folder: Path) -> list[Path]:
    """Draw what there are results for and return the files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib.figure as figures  # loaded late: only this command needs it
    except ImportError:
        raise ConfigError("plots need matplotlib; install it with `pip install 'tts-orch[bench]'`") from None
    files = []
    for name, (part, draw) in _PLOTS.items():
        if part in results:
            figure = figures.Figure(figsize=(8, 5), layout="constrained")
            draw(figure.subplots(), results[part])
            figure.suptitle(_origin(results), fontsize=8)
            files.append(folder / f"{name}.png")
            figure.savefig(files[-1], dpi=150)
    return files


def _origin(results: Results) -> str:
    """Return what the results were measured on, as far as it is known."""
    known = results.get("record") or results.get("timing")
    return "{target} on {device}, {dtype}, numerics {numerics}".format(**known) if known else ""


def _tau_by_index(axes: Any, result: JsonObject) -> None:
    for label, rows in _largest(result):
        curve = _mean_curve([row["tau_by_index"] for row in rows])
        axes.plot(range(1, len(curve) + 1), curve, label=label, marker="o", markersize=3)
    _name(
        axes, "trajectory", "tau", f"tau by trajectory index, at most {_most_nodes(result)} nodes, mean over workloads"
    )


def _tau_by_index_real(axes: Any, result: JsonObject) -> None:
    for label, rows in _by_label(iter(result["rows"])):
        curve = _mean_curve([row["tau_by_index"] for row in rows])
        axes.plot(range(1, len(curve) + 1), curve, label=label, marker="o", markersize=3)
    _name(
        axes,
        "trajectory",
        "tau",
        f"tau by trajectory index, at most {_most_nodes(result)} nodes, real runs and replays of the same",
    )


def _tau_by_nodes(axes: Any, result: JsonObject) -> None:
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


def _acceptance_by_depth(axes: Any, result: JsonObject) -> None:
    for label, rows in _largest(result):
        curve = _mean_curve([row["acceptance_at_depth"] for row in rows])
        axes.plot(range(1, len(curve) + 1), curve, label=label, marker="o", markersize=3)
    _name(
        axes,
        "depth",
        "P(accepted length >= depth)",
        f"acceptance by depth, at most {_most_nodes(result)} nodes, mean over workloads",
    )


def _overlap(axes: Any, result: JsonObject) -> None:
    for order in sorted({row["order"] for row in result["rows"]}):
        curve = _mean_curve([row["by_index"] for row in result["rows"] if row["order"] == order])
        axes.plot(range(1, len(curve) + 1), curve, label=f"n = {order}", marker="o", markersize=3)
    _name(axes, "trajectory", "share said before", "n-gram overlap with the prompt and earlier trajectories")


def _speed(axes: Any, result: JsonObject) -> None:
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


def _by_label(rows: Iterator[JsonObject]) -> Iterator[tuple[str, list[JsonObject]]]:
    groups: dict[str, list[JsonObject]] = {}
    for row in rows:
        groups.setdefault(row["label"], []).append(row)
    yield from groups.items()


def _mean_curve(curves: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean of curves, which count as 0 behind their ends."""
    length = max(map(len, curves))
    return [float(np.mean([curve[i] if i < len(curve) else 0.0 for curve in curves])) for i in range(length)]


def _name(axes: Any, x: str, y: str, title: str) -> None:
    axes.set(xlabel=x, ylabel=y, title=title)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
