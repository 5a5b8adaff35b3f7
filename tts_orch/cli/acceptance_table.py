"""The table that ends a replay: a column a drafter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rich.table import Table

from tts_orch.replay.acceptance import Acceptance, StepCount
from tts_orch.replay.measured_drafter import MeasuredDrafter

__all__ = ["acceptance_table"]

_MOST_DEPTHS: Final = 8


def acceptance_table(measured: Mapping[str, MeasuredDrafter]) -> Table:
    """Return what became of drafts, by drafter, as a table for people."""
    table = Table("", *measured, box=None, pad_edge=False)
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
