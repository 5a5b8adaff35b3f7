"""`DraftAccount`: what drafts cost that do not pay, who goes on after a pause of the machine, and who is found again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts_orch.policies.drafting.draft_account import DraftAccount

_CHEAP = 0.01  # of a pass's time
_PAUSE = 100.0


@dataclass
class Decoding:
    """Passes of some trajectories, of which each takes one second without drafts.

    Args:
        seconds: of drafting, by the number of the pass.
        brings: mean tokens of a tree, by the same.
        n_roots: trajectories.
        unread: seconds that a pass costs later that did not draft, for what must be read then; they count up to three.
    """

    seconds: Callable[[int], float]
    brings: Callable[[int], float]
    n_roots: int = 16
    unread: float = 0.0
    account: DraftAccount = field(default_factory=DraftAccount)
    drafted: list[int] = field(default_factory=list)
    lost: float = 0.0
    n_passes: int = 0
    _n_unread: int = 0

    def __post_init__(self) -> None:
        self._luck = np.random.default_rng(0)

    def run(self, n_passes: int) -> Decoding:
        for number in range(self.n_passes, self.n_passes + n_passes):
            self._n_unread += 1
            if self.account.affords_drafts:
                self._draft(number)
            self.account.add_allowance(self.n_roots)
        self.n_passes += n_passes
        return self

    def _draft(self, number: int) -> None:
        seconds = self.seconds(number) + min(self.unread * (self._n_unread - 1), 3.0)
        n_gained = int(self._luck.binomial(2 * self.n_roots, self.brings(number) / 2))
        self.account.book(n_gained, seconds, 1.0, self.n_roots)
        self.lost += seconds - n_gained / self.n_roots
        self.drafted.append(number)
        self._n_unread = 0

    def n_drafted(self, first: int, last: int) -> int:
        """Return in how many of these passes there were drafts."""
        return sum(first <= number < last for number in self.drafted)


def _always(value: float) -> Callable[[int], float]:
    return lambda number: value


def _with_pauses(*numbers: int) -> Callable[[int], float]:
    return lambda number: _PAUSE if number in numbers else _CHEAP


def test_a_drafter_that_is_always_dear_costs_a_few_looks_and_the_allowance() -> None:
    """Each draft takes as long as three passes and brings 0.3 tokens a tree, for 16 trajectories."""
    decoding = Decoding(_always(3.0), _always(0.3)).run(128)
    assert len(decoding.drafted) <= 4
    assert decoding.lost / 128 < 0.09
    decoding.run(10_000)
    assert 0.002 < decoding.lost / decoding.n_passes < 0.005


@pytest.mark.parametrize("n_roots", [1, 16])
@pytest.mark.parametrize("seconds", [0.001, 0.5, 5.0])
def test_drafts_that_do_not_pay_cost_the_allowance(n_roots: int, seconds: float) -> None:
    """Once the first credit is lost, and where it takes that long what they cost is believed."""
    decoding = Decoding(_always(seconds), _always(0.0), n_roots).run(5000)
    first = decoding.lost
    decoding.run(20_000)
    assert (decoding.lost - first) / 20_000 == pytest.approx(min(0.003, seconds), rel=0.25)


@pytest.mark.parametrize("pauses", [(0,), (50,), (50, 51), (50, 52), (0, 50, 51, 100)])
def test_pauses_of_the_machine_do_not_stop_a_cheap_drafter(pauses: tuple[int, ...]) -> None:
    decoding = Decoding(_with_pauses(*pauses), _always(0.05)).run(1000)
    assert len(decoding.drafted) == 1000


def test_two_pauses_at_the_very_beginning_stop_it_for_a_moment() -> None:
    """They look like a drafter that is dear."""
    decoding = Decoding(_with_pauses(0, 1), _always(0.05)).run(1000)
    assert len(decoding.drafted) > 800


def test_pauses_cost_a_drafter_with_an_empty_account_a_few_drafts() -> None:
    """It brings what it costs, and rests for a while."""
    decoding = Decoding(_with_pauses(1000, 1001), _always(_CHEAP)).run(4000)
    assert decoding.n_drafted(1000, 1100) > 30


def test_drafts_that_pay_never_rest() -> None:
    assert len(Decoding(_always(0.5), _always(0.7)).run(1000).drafted) == 1000


@pytest.mark.parametrize("n_roots", [1, 16, 64])
def test_a_dear_drafter_that_catches_up_first_is_found_again(n_roots: int) -> None:
    """A draft takes half a pass, and up to three more after a rest; at first it brings a tenth of a token, then 0.8."""
    changes = 1000
    decoding = Decoding(_always(0.5), lambda n: 0.8 if n >= changes else 0.1, n_roots, unread=0.02)
    decoding.run(changes)
    assert decoding.lost / changes < 0.04
    decoding.run(9000)
    assert decoding.n_drafted(9000, 10_000) == 1000


def test_a_trial_is_owed_until_the_allowance_has_paid_for_it() -> None:
    """Drafts take half a pass of 4 trajectories, 2 tokens: seventeen lose the first credit, then one is tried after another."""
    drafted = Decoding(_always(0.5), _always(0.0), n_roots=4).run(2000).drafted
    assert drafted[:17] == list(range(17))
    assert np.diff(drafted[17:]) == pytest.approx(2 / 0.012, abs=1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 30), st.floats(0, 4)), max_size=20), st.integers(1, 64))
def test_drafts_always_come_back(passes: list[tuple[float, float]], n_roots: int) -> None:
    """Whatever they took of a pass, and brought a tree: after a rest in which the allowance pays for two like the dearest of them."""
    account, dearest = DraftAccount(), 0.0
    for seconds, brought in passes:
        n_rested = 0  # so many passes have an allowance of one pass
        while not account.affords_drafts:
            account.add_allowance(round(n_roots / 0.003))
            n_rested += 1
        assert n_rested <= 2 * dearest + 1
        dearest = max(dearest, account.book(brought * n_roots, seconds, 1.0, n_roots))
