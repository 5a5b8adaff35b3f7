"""Workers, compactors and servers are killed at random: nothing counts twice, and what is lost has lost its writer too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store.conftest import ServerStarter
from tests.store.kills import Outcome, count_after_kills

pytestmark = pytest.mark.redis

_PERSISTENCE = {
    "always": (("appendonly", "yes"), ("appendfsync", "always")),
    "everysec": (("appendonly", "yes"), ("appendfsync", "everysec")),
    "none": (),
}


def check(outcome: Outcome, n_deltas: int, *, is_safe: bool) -> None:
    """Everything was sent; what the server has is made of whole batches, each once, and is what every worker knows."""
    assert (outcome.sent, outcome.unsent, outcome.twice) == (n_deltas, 0, 0)
    assert outcome.batches_are_whole
    assert outcome.tables_agree
    assert outcome.lost_of_living == 0
    assert outcome.acknowledged - outcome.lost <= outcome.stored <= outcome.sent
    if is_safe:
        assert outcome.lost == 0


@pytest.mark.parametrize("persistence", ["always", "none"])
@pytest.mark.parametrize("server_program", ["redis"], indirect=True)
def test_counts_are_right(start_server: ServerStarter, server_folder: Path, persistence: str) -> None:
    server = start_server(*_PERSISTENCE[persistence])
    outcome = count_after_kills(
        server, server_folder, n_workers=2, n_deltas=6_000, n_kills=2, pause_s=0.05, seed=len(persistence)
    )
    check(outcome, 12_000, is_safe=persistence == "always")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("persistence", [*_PERSISTENCE])
def test_counts_of_four_workers_are_right(start_server: ServerStarter, server_folder: Path, persistence: str) -> None:
    server = start_server(*_PERSISTENCE[persistence])
    outcome = count_after_kills(
        server, server_folder, n_workers=4, n_deltas=100_000, n_kills=10, pause_s=0.1, seed=len(persistence)
    )
    print(persistence, outcome)  # noqa: T201  # the loss is a figure for people
    check(outcome, 400_000, is_safe=persistence == "always")
