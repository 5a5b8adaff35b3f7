from __future__ import annotations

from typing import Any

from tts_orch.bench.merging import merged

MONDAY = {"date": "2026-11-23", "plan": {"target": "toy"}}
TUESDAY = {"date": "2026-11-24", "plan": {"target": "toy"}}
Row = dict[str, Any]


def row(workload: str, method: str, tau: float, **more: object) -> Row:
    return {"workload": workload, "method": method, "tau": tau, **more}


def taus(part: Row) -> list[tuple[str, str, float]]:
    return [(one["workload"], one["method"], one["tau"]) for one in part["rows"]]


def test_rows_measured_again_take_the_place_of_their_predecessors() -> None:
    before = merged({}, {"rows": [row("a", "x", 1.0), row("a", "y", 2.0), row("b", "x", 3.0)], "torch": "1"}, MONDAY)
    after = merged(before, {"rows": [row("a", "y", 2.5), row("c", "x", 4.0)], "torch": "2"}, TUESDAY)
    assert taus(after) == [("a", "x", 1.0), ("a", "y", 2.5), ("b", "x", 3.0), ("c", "x", 4.0)]
    assert after["torch"] == "2"


def test_every_row_names_the_run_it_is_from() -> None:
    before = merged({}, {"rows": [row("a", "x", 1.0), row("a", "y", 2.0)]}, MONDAY)
    after = merged(before, {"rows": [row("a", "y", 2.5)]}, TUESDAY)
    assert [after["made"][one["made"]] for one in after["rows"]] == [MONDAY, TUESDAY]


def test_runs_without_rows_left_are_forgotten() -> None:
    rows = {"rows": [row("a", "x", 1.0)]}
    assert list(merged(merged({}, rows, MONDAY), rows, TUESDAY)["made"].values()) == [TUESDAY]


def test_rows_differ_by_sizes_and_not_by_what_was_found() -> None:
    few, many = row("a", "x", 1.0, nodes=4, lockstep=1), row("a", "x", 1.5, nodes=80, lockstep=1)
    before = merged({}, {"rows": [few, many]}, MONDAY)
    after = merged(before, {"rows": [{**many, "tau": 2.0, "drafting_us": 3.0}]}, TUESDAY)
    assert [one["tau"] for one in after["rows"]] == [1.0, 2.0]


def test_each_list_of_rows_is_merged_by_itself() -> None:
    before = merged({}, {"rows": [row("a", "x", 1.0)], "siblings": [{"workload": "a", "siblings": 1}]}, MONDAY)
    after = merged(before, {"rows": [], "siblings": [{"workload": "a", "siblings": 2}]}, TUESDAY)
    assert taus(after) == [("a", "x", 1.0)]
    assert [one["siblings"] for one in after["siblings"]] == [1, 2]
