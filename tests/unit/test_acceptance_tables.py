"""The tables that end a replay."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import get_args

import pytest
from rich.console import Console

from tts_orch.cli.acceptance_table import acceptance_tables
from tts_orch.config import UntrainedName
from tts_orch.replay.acceptance import Acceptance, SourceCount

DRAFTERS = list(get_args(UntrainedName))


def measured(tau: int) -> SimpleNamespace:
    """A drafter whose verify steps committed so many tokens."""
    tally = Acceptance(draft_nodes=500)
    tally.total.add(tau)
    tally.by_index[300].add(tau)
    tally.by_index[0].add(tau)
    tally.by_length[tau - 1] += 1
    tally.by_source[12] = SourceCount(roots=1, nodes=500, tried=1, accepted=1)
    return SimpleNamespace(acceptance=tally, drafting_us=12345.0, observing_us=12345.0)


def printed(width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    for table in acceptance_tables({name: measured(i) for i, name in enumerate(DRAFTERS, start=2)}, width):  # type: ignore[arg-type]
        console.print(table)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_all_drafters_stand_side_by_side_in_100_columns() -> None:
    heading, tau, *lines = printed(100)
    assert heading.split() == DRAFTERS
    assert tau.split() == ["tau", *(f"{i}.000" for i in range(2, 2 + len(DRAFTERS)))]
    assert not any(line.split() == DRAFTERS for line in lines)
    assert max(map(len, (heading, *lines))) <= 100


@pytest.mark.parametrize("width", [40, 80])
def test_what_does_not_fit_stands_below_in_one_piece(width: int) -> None:
    lines = printed(width)
    assert [name for line in lines for name in line.split() if name in DRAFTERS] == DRAFTERS
    taus = [line.split()[1:] for line in lines if line.startswith("tau")]
    assert len(taus) > 1
    assert [float(tau) for of_table in taus for tau in of_table] == [float(i) for i in range(2, 2 + len(DRAFTERS))]
