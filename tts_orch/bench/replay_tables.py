"""Tables of replayed acceptance, temperature by temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from tts_orch.bench.markdown import pivot
from tts_orch.json_lines import JsonObject

__all__ = ["replay_tables"]

_LAST_SOURCE: Final = 4
_DEEPEST: Final = 8


def replay_tables(rows: Sequence[JsonObject]) -> Iterator[str]:
    """Yield headings and tables; means are over workloads."""
    most = max(row["nodes"] for row in rows)
    for temperature in sorted({row["temperature"] for row in rows}):
        here = [row for row in rows if row["temperature"] == temperature]
        sequential = [row for row in here if row["lockstep"] == 1]
        largest = [row for row in sequential if row["nodes"] == most]
        yield f"### T = {temperature:g}\n"
        yield f"tau with at most {most} nodes, one trajectory after another:\n"
        yield pivot(largest, "label", "workload", "tau", mean=True)
        yield "tau over the first trajectories of each problem:\n"
        yield _by_count(largest)
        yield "tau by nodes:\n"
        yield pivot(sequential, "label", "nodes", "tau")
        yield f"tau by trajectories in lockstep, at most {most} nodes:\n"
        yield pivot([row for row in here if row["nodes"] == most], "label", "lockstep", "tau")
        yield "Acceptance by depth, P(accepted length >= d):\n"
        yield _by_depth(largest)
        yield "By the source of nodes (n-gram: the order that hit):\n"
        yield _by_source(largest)
        yield "A verify step:\n"
        yield _costs(largest)


def _by_count(rows: Sequence[JsonObject]) -> str:
    flat = [
        {"label": row["label"], "trajectories": int(n), "tau": tau}
        for row in rows
        for n, tau in row["tau_of_first"].items()
    ]
    return pivot(flat, "label", "trajectories", "tau")


def _by_depth(rows: Sequence[JsonObject]) -> str:
    flat = [
        {"label": row["label"], "depth": depth, "share": (row["acceptance_at_depth"] + [0.0] * _DEEPEST)[depth - 1]}
        for row in rows
        for depth in range(1, _DEEPEST + 1)
    ]
    return pivot(flat, "label", "depth", "share")


def _by_source(rows: Sequence[JsonObject]) -> str:
    flat: list[JsonObject] = [
        {"label": row["label"], "source": f"{source}: {name}", "value": figures[key]}
        for row in rows
        for source, figures in row["by_source"].items()
        for name, key in (("hit", "hit_rate"), ("accepted", "acceptance"))
        if int(source) <= _LAST_SOURCE
    ]
    return pivot(flat, "label", "source", "value")


def _costs(rows: Sequence[JsonObject]) -> str:
    names = {
        "nodes_a_step": "nodes",
        "wasted": "wasted",
        "drafting_us": "drafting, us",
        "observing_us": "observing, us",
    }
    flat = [
        {"label": row["label"], "what": name, "value": _wasted(row) if key == "wasted" else row[key]}
        for row in rows
        for key, name in names.items()
    ]
    return pivot(flat, "label", "what", "value", digits=1)


def _wasted(row: JsonObject) -> float:
    return float(row["wasted_nodes"] / row["verify_steps"])
