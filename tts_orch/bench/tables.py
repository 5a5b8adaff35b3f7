"""All results of a benchmark as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tts_orch.bench.markdown import Cell, pivot, section, table
from tts_orch.bench.plan import Part
from tts_orch.bench.replay_tables import replay_tables
from tts_orch.json_lines import JsonObject

__all__ = ["tables"]

Results = Mapping[Part, JsonObject]

_PARTS_OF_A_PASS: Final = ("draft", "forward", "verify", "commit", "learn")


def tables(results: Results) -> str:
    """Return the tables of all parts that are done, each with what it was measured on."""
    parts = [_SECTIONS[part](results[part]) for part in _SECTIONS if part in results]
    return "\n".join(["# Drafting benchmark\n", _made(results), *parts])


def _made(results: Results) -> str:
    """Return where and when the rows of each part were measured."""
    rows = []
    for part, result in results.items():
        for run, made in result["made"].items():
            n_rows = sum(row["made"] == run for row in result["rows"])
            versions = ", ".join(f"{package} {version}" for package, version in made["versions"].items())
            rows.append([part, n_rows, made["date"], made["plan"]["target"], made["machine"], versions])
    return section("Where and when", table(["part", "rows", "date", "target", "machine", "versions"], rows))


def _record(result: JsonObject) -> str:
    columns = ("workload", "temperature", "problems", "trajectories", "tokens")
    curve = result["cost_curve"]
    costs = table(
        ["rows of a pass", *(str(rows) for rows, _ in curve)],
        [
            ["milliseconds", *(1000 * seconds for _, seconds in curve)],
            ["Tv/T1", *(seconds / curve[0][1] for _, seconds in curve)],
        ],
    )
    return section(
        f"What was recorded\n\n{_device(result)}. Plain keyed decoding; at temperature 0 all trajectories of a problem are "
        "equal, so one is recorded and statistics are shared over the task.",
        table(columns, [[row[column] for column in columns] for row in result["rows"]]),
        costs,
    )


def _ablation(result: JsonObject) -> str:
    return section(
        "Ablations",
        "tau at the highest temperature, by replay; (b), rejected nodes, is among the real runs:\n",
        pivot(result["rows"], "label", "workload", "tau"),
    )


def _overlap(result: JsonObject) -> str:
    flat = [
        {"n-gram": f"{row['workload']}, n = {row['order']}", "trajectories": n, "share": row["by_index"][n - 1]}
        for row in result["rows"]
        for n in (1, 2, 4, 8, 16)
        if n <= len(row["by_index"])
    ]
    what = (
        "Share of the n-grams of a trajectory that stand in its prompt or in trajectories before it, by its number:\n"
    )
    return section("n-gram overlap", what, pivot(flat, "n-gram", "trajectories", "share"))


def _coupling(result: JsonObject) -> str:
    columns = ("workload", "siblings", "positions", "keyed", "rejection", "tau_keyed", "tau_rejection")
    rows = [[*(row[column] for column in columns), _loss(row)] for row in result["rows"]]
    what = "From recorded laws and those of STAND at the same positions: acceptance where the table knew the context, and tau of trees of 4 levels.\n"
    return section(
        "Keyed verification against rejection, by siblings", what, table([*columns, "keyed loses, %"], rows, 3)
    )


def _loss(row: JsonObject) -> float:
    return float(100 * (1 - row["tau_keyed"] / row["tau_rejection"]))


def _alternation(result: JsonObject) -> str:
    rows = [
        [row["scope"], row["table_entries"], row["order"], row["tau"], index, *by_fifth]
        for row in result["rows"]
        for index, by_fifth in enumerate(row["by_index"], start=1)
    ]
    header = ["scope", "entries", "order", "tau", "trajectory", *(f"fifth {i}" for i in range(1, 6))]
    what = (
        f"{result['problems']} problems, {result['trajectories']} trajectories, replayed problem by problem and with problems "
        "that take turns: tau of all, and of first and later trajectories of a problem by fifths of the problems.\n"
    )
    return section("Alternating problems", what, table(header, rows))


def _real(result: JsonObject) -> str:
    rows = [
        [
            row["workload"],
            row["label"],
            "real" if row["is_real"] else "replay",
            row["nodes"],
            row["tau"],
            *_of_first(row),
        ]
        for row in result["rows"]
    ]
    header = ["workload", "method", "how", "nodes", "tau", "first 1", "first 4", "first 8", "first 16"]
    siblings = [
        [row["workload"], row["siblings"], row["depth"], row["tau_keyed"], row["tau_rejection"]]
        for row in result["siblings"]
    ]
    columns = ["workload", "siblings", "depth", "tau keyed", "tau rejection"]
    return section(
        "Real runs",
        f"{_device(result)}. What learns from rejected nodes is decoded; everything else is replayed on the same problems:\n",
        table(header, rows),
        "Both verification rules on the same trees of equal siblings. Their texts differ, so that this shows what to expect of "
        'a run; the rules are compared at equal positions under "Keyed verification against rejection":\n',
        table(columns, siblings),
    )


def _of_first(row: JsonObject) -> list[Cell]:
    return [row["tau_of_first"].get(str(n)) for n in (1, 4, 8, 16)]


def _timing(result: JsonObject) -> str:
    header = ["cell", "pairs", "tokens/s", "plain", "ratio", "median [95 %]", "A/A band", "tau", "rows", "Tv/T1"]
    header += ["bound", "share", "slower"]
    rows = [list(_timing_row(row)) for row in result["rows"]]
    times = [[row["label"], *map(row["milliseconds_a_pass"].get, _PARTS_OF_A_PASS)] for row in result["rows"]]
    return section(
        f"Speed against plain decoding\n\n{_device(result)}. STAND with node budget.",
        table(header, rows),
        "Milliseconds a pass:\n",
        table(["cell", *_PARTS_OF_A_PASS], times),
    )


def _timing_row(row: JsonObject) -> Iterator[Cell]:
    yield from (row["label"], row["pairs"])
    yield from (row["tokens_per_second"]["drafted"], row["tokens_per_second"]["plain"], row["ratio"])
    yield from (_interval(row["median_ratio"]), _interval(row["a_a_band"]))
    yield from (row["tau"], row["rows_a_pass"], row["tv_over_t1"], row["bound"], row["share_of_bound"])
    yield "yes" if row["is_slower"] else "no"


def _interval(values: JsonObject) -> str:
    return f"{values['median']:.2f} [{values['low']:.2f}, {values['high']:.2f}]"


def _device(result: JsonObject) -> str:
    numbers = f"{result['dtype']}, numerics {result['numerics']}, torch {result['torch']}"
    return f"{result['target']} on {result['device']}, {numbers}"


_SECTIONS: Final[Mapping[Part, Callable[[JsonObject], str]]] = {
    "record": _record,
    "replay": lambda result: section("Acceptance by replay", *replay_tables(result["rows"])),
    "real": _real,
    "timing": _timing,
    "ablation": _ablation,
    "coupling": _coupling,
    "overlap": _overlap,
    "alternation": _alternation,
}
