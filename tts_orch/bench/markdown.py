"""Markdown tables from rows of results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from tts_orch.json_lines import JsonObject

__all__ = ["Cell", "number", "pivot", "section", "table"]

Cell: TypeAlias = "str | float | int | None"


def number(value: Cell, digits: int = 2) -> str:
    """Return a cell's text: so many digits behind the point, a dash for what is not there."""
    if value is None or value != value:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def section(title: str, *parts: str) -> str:
    """Return parts under a heading."""
    return "\n".join([f"## {title}\n", *parts])


def table(header: Sequence[str], rows: Iterable[Sequence[Cell]], digits: int = 2) -> str:
    """Return a Markdown table; every row has as many cells as the header."""
    lines = [header, ["---"] * len(header), *([number(cell, digits) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def pivot(
    rows: Sequence[JsonObject], down: str, across: str, value: str, *, mean: bool = False, digits: int = 2
) -> str:
    """Return a table of one value by two keys, in the order in which these first appear; numbered columns in theirs.

    Args:
        rows: results; of rows with the same two keys the mean counts.
        down: key of the table's rows.
        across: key of its columns.
        value: key of what is shown.
        mean: whether a last column has the mean of each row.
        digits: behind the point.
    """
    cells: dict[tuple[Cell, Cell], list[float]] = {}
    for row in rows:
        if row[value] is not None:
            cells.setdefault((row[down], row[across]), []).append(row[value])
    means = {key: sum(values) / len(values) for key, values in cells.items()}
    names, columns = _distinct(rows, down), _sorted(_distinct(rows, across))
    body = []
    for name in names:
        values = [means.get((name, column)) for column in columns]
        body.append([name, *values, *([_mean(values)] if mean else [])])
    return table([down, *map(str, columns), *(["mean"] if mean else [])], body, digits)


def _mean(values: Sequence[float | None]) -> float | None:
    """Return the mean, None where a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _sorted(columns: list[Cell]) -> list[Cell]:
    """Return numbers and numbered names in order, other names as they came."""
    is_numbered = all(str(column)[:1].isdigit() for column in columns)
    return sorted(columns, key=_number_first) if is_numbered else columns


def _number_first(column: Cell) -> tuple[float, str]:
    number, _, rest = str(column).partition(":")
    return float(number), rest


def _distinct(rows: Sequence[JsonObject], key: str) -> list[Cell]:
    return list(dict.fromkeys(row[key] for row in rows))
