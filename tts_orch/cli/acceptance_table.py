"""The tables that end a replay: a column a drafter, as many side by side as fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from rich.table import Table

from tts_orch.replay.acceptance import Acceptance, StepCount
from tts_orch.replay.measured_drafter import MeasuredDrafter

__all__ = ["acceptance_tables"]

_MOST_DEPTHS: Final = 8
_TITLE_WIDTH: Final = 23
_VALUE_WIDTH: Final = len("100.0 %")


def acceptance_tables(measured: Mapping[str, MeasuredDrafter], width: int) -> Iterator[Table]:
    """Yield what became of drafts, by drafter, as tables for people; none is wider than `width` if titles are short."""
    for names in _side_by_side(measured, width):
        yield _table({name: measured[name] for name in names})


def _side_by_side(names: Iterable[str], width: int) -> Iterator[list[str]]:
    """Cut names into lists whose columns fit side by side."""
    together: list[str] = []
    left = width - _TITLE_WIDTH
    for name in names:
        needed = 1 + max(len(name), _VALUE_WIDTH)
        if together and needed > left:
            yield together
            together, left = [], width - _TITLE_WIDTH
        together.append(name)
        left -= needed
    yield together


def _table(measured: Mapping[str, MeasuredDrafter]) -> Table:
    table = Table("", *measured, box=None, pad_edge=False, collapse_padding=True)
    for column in table.columns[1:]:
        column.justify = "right"
    tallies = [drafter.acceptance for drafter in measured.values()]
    for row in (*_tau_rows(tallies), *_node_rows(tallies), *_source_rows(tallies)):
        table.add_row(*row)
    table.add_row("drafting, us a step", *(f"{drafter.drafting_us:.0f}" for drafter in measured.values()))
    table.add_row("observing, us a step", *(f"{drafter.observing_us:.0f}" for drafter in measured.values()))
    return table


def _tau_rows(tallies: Sequence[Acceptance]) -> Iterator[tuple[str, ...]]:
    yield "tau", *(f"{tally.tau:.3f}" for tally in tallies)
    n_indices = 1 + max(index for tally in tallies for index in tally.by_index)
    for first, end in _doubling(n_indices):
        title = f"  trajectory {first}" if end == first + 1 else f"  trajectories {first}-{end - 1}"
        yield title, *(f"{_tau_of(tally, first, end):.3f}" for tally in tallies)


def _node_rows(tallies: Sequence[Acceptance]) -> Iterator[tuple[str, ...]]:
    yield "draft nodes a step", *(f"{tally.nodes_a_step:.1f}" for tally in tallies)
    yield "  of them in vain", *(_percent(1 - tally.draft_acceptance_rate) for tally in tallies)
    deepest = max(length for tally in tallies for length in tally.by_length)
    for depth in range(1, min(deepest, _MOST_DEPTHS) + 1):
        yield f"length >= {depth}", *(_percent(tally.at_depth(depth)) for tally in tallies)


def _source_rows(tallies: Sequence[Acceptance]) -> Iterator[tuple[str, ...]]:
    for source in sorted({source for tally in tallies for source in tally.by_source}):
        counts = [(tally, tally.by_source.get(source)) for tally in tallies]
        yield (
            f"source {source}: at hand",
            *(_percent(tally.hit_rate(source)) if count else "" for tally, count in counts),
        )
        yield "  and right", *(_percent(count.acceptance) if count else "" for _, count in counts)


def _doubling(n: int) -> Iterator[tuple[int, int]]:
    """Cut `range(n)` into 0, 1, 2-3, 4-7, 8-15, ..."""
    first, end = 0, 1
    while first < n:
        yield first, min(end, n)
        first, end = end, 2 * end


def _tau_of(tally: Acceptance, first: int, end: int) -> float:
    together = StepCount()
    for index, count in tally.by_index.items():
        if first <= index < end:
            together.verify_steps += count.verify_steps
            together.committed_tokens += count.committed_tokens
    return together.tau


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
